# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of SLURM's configuration files and the versions that accept them.

The tables come from SLURM's own parser: the tables ``s_p_options_t`` of src/common/read_config.c, of cgroup.c and of
src/slurmdbd/read_config.c (github.com/SchedMD/slurm), without those marked as defunct, of the last release of each
version.
"""

from __future__ import annotations

import difflib
import re
import typing as t
from dataclasses import dataclass

OLDEST: tuple[int, int] = (21, 8)
KINDS = {"b": "yes or no", "n": "a number", "f": "a number", "a": "a text or a list of lines", "": "a text"}

# ``Name`` is a text, ``Name:b`` yes or no, ``:n`` a number, ``:f`` a number with a fraction, ``:a`` may be
# there several times; ``>=`` is the first version that has it, ``<`` the first without it.
_SETTINGS = """
AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost AccountingStorageHost
AccountingStorageLoc<25.11 AccountingStorageParameters AccountingStoragePass AccountingStoragePort:n
AccountingStorageTRES AccountingStorageType AccountingStorageUser<25.11 AccountingStoreFlags
AccountingStoreJobComment:b AcctGatherEnergyType AcctGatherFilesystemType AcctGatherInfinibandType
AcctGatherInterconnectType AcctGatherNodeFreq:n AcctGatherProfileType AllowSpecResourcesUsage:b AuthAltParameters
AuthAltTypes AuthInfo AuthType BackupAddr BackupController BatchStartTimeout:n BcastExclude BcastParameters
BurstBufferParameters BurstBufferType CertgenParameters>=25.05 CertgenType>=25.05 CertmgrParameters>=24.11
CertmgrType>=24.11 CliFilterParameters>=25.11 CliFilterPlugins ClusterName CommunicationParameters CompleteWait:n
ControlAddr ControlMachine CoreSpecPlugin<24.05 CpuFreqDef CpuFreqGovernors CredType CryptoType
DataParserParameters>=24.11 DebugFlags DefCPUPerGPU:n DefMemPerCPU:n DefMemPerGPU:n DefMemPerNode:n
DependencyParameters DisableRootJobs:b DownNodes:a EioTimeout:n EnforcePartLimits Epilog:a EpilogMsgTime:n
EpilogSlurmctld:a EpilogTimeout:n>=25.05 ExtSensorsFreq:n<23.11 ExtSensorsType<23.11 FairShareDampeningFactor:n
FastSchedule:n FederationParameters FirstJobId:n FrontendName:a<25.05 GetEnvTimeout:n<25.05 GpuFreqDef GresTypes
GroupUpdateForce:n GroupUpdateTime:n HashPlugin>=24.05 HealthCheckInterval:n HealthCheckNodeState HealthCheckProgram
HealthCheckTimeout:n>=26.05 HttpParserType>=25.11 InactiveLimit:n InteractiveStepOptions JobAcctGatherFrequency
JobAcctGatherParams JobAcctGatherType JobCompHost JobCompLoc JobCompParams JobCompPass JobCompPassScript>=25.11
JobCompPort:n JobCompType JobCompUser JobContainerType JobCredentialPrivateKey<23.11
JobCredentialPublicCertificate<23.11 JobFileAppend:n JobRequeue:n JobSubmitPlugins KeepAliveTime:n KillOnBadExit:n
KillWait:n LaunchParameters LaunchType LicenseParameters>=26.05 Licenses LogTimeFormat MailDomain MailProg
MaxArraySize:n MaxBatchRequeue:n>=23.02 MaxDBDMsgs:n MaxJobCount:n MaxJobId:n MaxMemPerCPU:n MaxMemPerNode:n
MaxNodeCount:n>=22.05 MaxStepCount:n MaxTasksPerNode:n MCSParameters MCSPlugin MessageTimeout:n
MetricsAuthUsers>=26.05 MetricsParameters>=26.05 MetricsType>=25.11 MinJobAge:n MpiDefault MpiParams
NamespaceType>=25.11 NodeFeaturesPlugins NodeName:a NodeSet:a OverTimeLimit:n PartitionName:a PluginDir
PlugStackConfig PowerAction:a>=26.05 PowerParameters<24.05 PowerPlugin<24.05 PreemptExemptTime PreemptMode
PreemptParameters>=23.02 PreemptType PrEpParameters PrEpPlugins PriorityCalcPeriod PriorityDecayHalfLife
PriorityFavorSmall:b PriorityFlags PriorityMaxAge PriorityParameters PrioritySiteFactorParameters
PrioritySiteFactorPlugin PriorityType PriorityUsageResetPeriod PriorityWeightAge:n PriorityWeightAssoc:n
PriorityWeightFairshare:n PriorityWeightJobSize:n PriorityWeightPartition:n PriorityWeightQOS:n PriorityWeightTRES
PrivateData ProctrackType Prolog:a PrologEpilogTimeout:n PrologFlags PrologSlurmctld:a PrologTimeout:n>=25.05
PropagatePrioProcess:n PropagateResourceLimits PropagateResourceLimitsExcept RebootProgram ReconfigFlags RequeueExit
RequeueExitHold ResumeFailProgram ResumeProgram ResumeRate:n ResumeTimeout:n ResvEpilog ResvOverRun:n ResvProlog
ReturnToService:n RoutePlugin SallocDefaultCommand SbcastParameters SchedulerParameters SchedulerTimeSlice:n
SchedulerType ScronParameters SelectType SelectTypeParameters SlurmctldAddr SlurmctldDebug SlurmctldHost:a
SlurmctldHttpAuthParameters>=26.05 SlurmctldLogFile SlurmctldParameters SlurmctldPidFile SlurmctldPlugstack<23.02
SlurmctldPort SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmctldTimeout:n SlurmdDebug
SlurmdHttpAuthParameters>=26.05 SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdPort:n SlurmdSpoolDir
SlurmdSyslogDebug SlurmdTimeout:n SlurmdUser SlurmSchedLogFile SlurmSchedLogLevel:n SlurmUser SrunEpilog
SrunPortRange SrunProlog StateSaveLocation SuspendExcNodes SuspendExcParts SuspendExcStates>=23.02 SuspendProgram
SuspendRate:n SuspendTime SuspendTimeout:n SwitchParameters SwitchType TaskEpilog TaskPlugin TaskPluginParam
TaskProlog TCPTimeout:n TLSParameters>=24.05 TLSType>=24.05 TmpFS TopologyParam TopologyPlugin TrackWCKey:b
TreeWidth:n UnkillableStepProgram UnkillableStepTimeout:n UrlParserType>=25.11 UsePAM:b VSizeFactor:n WaitTime:n
X11Parameters
"""
_NODE = """
BcastAddr Boards:n CoreSpecCount:n CoresPerSocket:n CpuBind CPUs:n CPUSpecList Feature Features Gres GresConf>=25.11
MemSpecLimit:n NodeAddr NodeHostname Parameters>=25.11 Port Procs:n RealMemory:n Reason
RestrictedCoresPerGPU:n>=24.05 Sockets:n SocketsPerBoard:n State SuspendTime>=26.05 ThreadsPerCore:n TmpDisk:n
Topology>=25.05 TRESWeights Weight:n
"""
_PARTITION = """
AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind Default:b DefaultTime DefCPUPerGPU:n DefMemPerCPU:n
DefMemPerGPU:n DefMemPerNode:n DenyAccounts DenyQos DisableRootJobs:b Exclusive>=26.05 ExclusiveTopo:b>=24.05
ExclusiveUser:b GraceTime:n Hidden:b LLN:b MaxCPUsPerNode:n MaxCPUsPerSocket:n>=23.02 MaxMemPerCPU:n MaxMemPerNode:n
MaxNodes:n MaxTime MinNodes:n Nodes OverSubscribe OverTimeLimit PowerDownOnIdle:b>=23.02 PreemptMode Priority:n
PriorityJobFactor:n PriorityTier:n QOS ReqResv:b ResumeTimeout:n RootOnly:b SelectTypeParameters Shared State
SuspendTime SuspendTimeout:n Topology>=25.05 TRESBillingWeights
"""
_CGROUP = """
AllowedDevicesFile AllowedKmemSpace:f<23.11 AllowedRAMSpace:f AllowedSwapSpace:f CgroupAutomount:b<23.11
CgroupJobIdPaths:b>=26.05 CgroupMountpoint CgroupPlugin CgroupReleaseAgentDir<25.11 CgroupSlice>=25.11
ConstrainCores:b ConstrainDevices:b ConstrainKmemSpace:b<23.11 ConstrainRAMSpace:b ConstrainSwapSpace:b
EnableControllers:b>=23.02 EnableExtraControllers>=25.05 IgnoreSystemd:b>=22.05 IgnoreSystemdOnFailure:b>=22.05
MaxKmemPercent:f<23.11 MaxRAMPercent:f MaxSwapPercent:f MemoryLimitEnforcement:b MemoryLimitThreshold:f
MemorySwappiness:n MinKmemSpace:n<23.11 MinRAMSpace:n RootOwnedCgroups:b>=23.02<23.11
SignalChildrenProcesses:b>=23.11 SystemdTimeout:n>=24.05 TaskAffinity:b<22.05
"""
_SLURMDBD = """
AllowNoDefAcct:b>=22.05 AllResourcesAbsolute:b>=23.02 ArchiveDir ArchiveEvents:b ArchiveJobEnv:b>=26.05 ArchiveJobs:b
ArchiveJobScript:b>=26.05 ArchiveResvs:b ArchiveScript ArchiveSteps:b ArchiveSuspend:b ArchiveTXN:b ArchiveUsage:b
AuthAltParameters AuthAltTypes AuthInfo AuthType CommitDelay:n CommunicationParameters DbdAddr DbdBackupHost DbdHost
DbdPort:n DebugFlags DebugLevel DebugLevelSyslog DefaultQOS DisableArchiveCommands:b>=25.11 DisableCoordDBD:b>=24.05
DisableRollups:b>=26.05 HashPlugin>=24.05 JobPurge:n LogFile LogTimeFormat MaxPurgeLimit:n>=25.11 MaxQueryTimeRange
MessageTimeout:n Parameters PidFile PluginDir PrivateData PurgeEventAfter PurgeEventMonths:n PurgeJobAfter
PurgeJobEnvAfter>=26.05 PurgeJobMonths:n PurgeJobScriptAfter>=26.05 PurgeResvAfter PurgeStepAfter PurgeStepMonths:n
PurgeSuspendAfter PurgeSuspendMonths:n PurgeTXNAfter PurgeTXNMonths:n PurgeUsageAfter PurgeUsageMonths:n SlurmUser
StepPurge:n StorageBackupHost StorageHost StorageLoc StorageParameters StoragePass StoragePassScript>=25.11
StoragePort:n StorageType StorageUser TCPTimeout:n TLSParameters>=24.05 TLSType>=24.05 TrackSlurmctldDown:b TrackWCKey:b
"""

_ENTRY = re.compile(r"(\w+)(?::(\w))?(?:>=([\d.]+))?(?:<([\d.]+))?")
_NUMBER = re.compile(r"(?:\d+|0x[0-9a-fA-F]+|\d+[kKmMgGtT]|INFINITE|UNLIMITED)", re.IGNORECASE)
_FRACTION = re.compile(r"\d+(?:\.\d+)?%?")
_YES = {"yes": "yes", "true": "yes", "up": "yes", "1": "yes", "no": "no", "false": "no", "down": "no", "0": "no"}


class SlurmError(ValueError):
    """Something that SLURM can't be given, in a sentence."""


@dataclass(frozen=True)
class Parameter:
    """A setting: its name as SLURM writes it, its kind, and the versions that have it."""

    name: str
    kind: str
    since: tuple[int, int]
    until: tuple[int, int] | None

    def known_to(self, version: tuple[int, int]) -> bool:
        return self.since <= version and (self.until is None or version < self.until)


@dataclass(frozen=True)
class Table:
    """The settings of a file or of a kind of line."""

    what: str
    parameters: t.Mapping[str, Parameter]

    def find(self, name: str, version: tuple[int, int], where: str) -> Parameter:
        """The setting. Raises SlurmError when SLURM of this version does not have it."""
        parameter = self.parameters.get(str(name).lower())
        if parameter is None:
            known = [entry.name for entry in self.parameters.values() if entry.known_to(version)]
            raise SlurmError(f"{where}: SLURM has no {self.what} {name!r}{near(str(name), known)}")
        if parameter.known_to(version):
            return parameter
        if version < parameter.since:
            change = f"it came with {version_text(parameter.since)}"
        else:
            change = f"it ended with {version_text(parameter.until or version)}"
        raise SlurmError(f"{where}: SLURM {version_text(version)} has no {self.what} {parameter.name}: {change}")

    def check(self, values: t.Any, where: str) -> None:
        """Raises SlurmError for a setting that no version of SLURM has, and for a value that it does not take."""
        for name in values if isinstance(values, t.Mapping) else ():
            parameter = self.parameters.get(str(name).lower())
            self.read({name: values[name]}, parameter.since if parameter else OLDEST, where)
        if not isinstance(values, t.Mapping):
            self.read(values, OLDEST, where)

    def read(self, values: t.Any, version: tuple[int, int], where: str) -> dict[str, list[str] | None]:
        """The checked values by the setting's name: the texts to write, one a line, or None to write none."""
        if not isinstance(values, t.Mapping):
            raise SlurmError(f"{where} is {values!r}, not a dictionary of settings")
        result: dict[str, list[str] | None] = {}
        for name, value in values.items():
            parameter = self.find(name, version, where)
            if parameter.name in result:
                raise SlurmError(f"{where}: the {self.what} {parameter.name} is there twice")
            result[parameter.name] = None if value is None else _texts(parameter, value, where)
        return result


def near(name: str, known: t.Iterable[str]) -> str:
    """``; did you mean A or B?`` for a name that is not known, or nothing when none is like it."""
    names = {entry.lower(): entry for entry in known}
    found = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.7)
    return f"; did you mean {' or '.join(names[entry] for entry in found)}?" if found else ""


def parse_version(text: t.Any) -> tuple[int, int]:
    """``24.11.5`` as ``(24, 11)``. Raises SlurmError for what is no version, or one older than the tables."""
    match = re.match(r"(?:slurm(?:-wlm)?\s+)?(\d{2})\.(\d{2})(?!\d)", str(text).strip())
    if match is None:
        raise SlurmError(f"{text!r} is not a version of SLURM such as 24.11.5")
    version = (int(match.group(1)), int(match.group(2)))
    if version < OLDEST:
        raise SlurmError(f"SLURM {text} is older than {version_text(OLDEST)}, the oldest that is supported")
    return version


def version_text(version: tuple[int, int]) -> str:
    """``(24, 5)`` as ``24.05``."""
    return f"{version[0]}.{version[1]:02d}"


def _texts(parameter: Parameter, value: t.Any, where: str) -> list[str]:
    if parameter.kind == "a" and isinstance(value, (list, tuple)):
        return [_text(parameter, item, where) for item in value]
    return [_text(parameter, value, where)]


def _text(parameter: Parameter, value: t.Any, where: str) -> str:
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, (list, tuple)):
        text = ",".join(str(item) for item in value)
    elif isinstance(value, (str, int, float)):
        text = str(value).strip()
    else:
        raise SlurmError(f"{where}: {parameter.name} is {value!r}, not {KINDS[parameter.kind]}")
    if not text or re.search(r'[\x00-\x1f"]', text):
        raise SlurmError(
            f"{where}: {parameter.name} is {text!r}, which is empty or has a line end or a double quote: "
            "give null to write no line for it"
        )
    return _KINDS_TEXT[parameter.kind](parameter, text, where)


def _yes_or_no(parameter: Parameter, text: str, where: str) -> str:
    if text.lower() not in _YES:
        raise SlurmError(f"{where}: {parameter.name} is {text!r}, not yes or no")
    return _YES[text.lower()]


def _number(parameter: Parameter, text: str, where: str) -> str:
    pattern = _FRACTION if parameter.kind == "f" else _NUMBER
    if not pattern.fullmatch(text):
        raise SlurmError(f"{where}: {parameter.name} is {text!r}, not a number")
    return text


def _line(_parameter: Parameter, text: str, _where: str) -> str:
    return _escaped(text)


def _quoted(_parameter: Parameter, text: str, _where: str) -> str:
    return f'"{_escaped(text)}"' if re.search(r"\s", text) else _escaped(text)


def _escaped(text: str) -> str:
    """Without a backslash, a number sign starts a comment."""
    return re.sub(r"(?<!\\)#", r"\\#", text)


_KINDS_TEXT: dict[str, t.Callable[[Parameter, str, str], str]] = {
    "": _quoted,
    "b": _yes_or_no,
    "n": _number,
    "f": _number,
    "a": _line,
}


def _table(what: str, text: str) -> Table:
    parameters = {}
    for entry in text.split():
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ValueError(f"{entry!r} is no entry of a table of settings")
        name, kind, since, until = match.groups()
        parameters[name.lower()] = Parameter(
            name, kind or "", _release(since) if since else OLDEST, _release(until) if until else None
        )
    return Table(what, parameters)


def _release(text: str) -> tuple[int, int]:
    year, month = text.split(".")
    return int(year), int(month)


SETTINGS = _table("setting", _SETTINGS)
NODE = _table("node parameter", _NODE)
PARTITION = _table("partition parameter", _PARTITION)
CGROUP = _table("setting of cgroup.conf", _CGROUP)
SLURMDBD = _table("setting of slurmdbd.conf", _SLURMDBD)
