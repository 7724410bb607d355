//! One GPU: which of the driver's calls work on it, and its figures by tier.
//!
//! Each figure is a list of calls, newest symbol first. What a GPU does not support is remembered and
//! not asked again until the slow tier asks everything anew, since drivers are known to answer blank
//! after an error until asked again. One figure that fails never hides the others; only a lost GPU and
//! a void handle end the reading early.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use crate::{
    nvml::{Code, Failure, FieldValue, Function, Handle, Session},
    sample::{
        Clocks, Ecc, Identity, Memory, Mig, MigInstance, Pcie, Power, Process, Processes, Thermal,
        Utilization,
    },
};

/// Field ids of nvml.h; all below 251, where drivers do not renumber.
mod field {
    pub(super) const MEMORY_TEMPERATURE: u32 = 82;
    pub(super) const REMAPPED_CORRECTED: u32 = 142;
    pub(super) const REMAPPED_UNCORRECTED: u32 = 143;
    pub(super) const REMAPPED_PENDING: u32 = 144;
    pub(super) const REMAPPED_FAILURE: u32 = 145;
    pub(super) const SHUTDOWN_LIMIT: u32 = 193;
    pub(super) const SLOWDOWN_LIMIT: u32 = 194;
    pub(super) const PCIE_TX_BYTES: u32 = 197;
    pub(super) const PCIE_RX_BYTES: u32 = 198;
    pub(super) const RECOVERY_ACTION: u32 = 230;
}

/// Utilisation above this is a driver's mistake and is dropped.
const PERCENT_MAX: u32 = 100;
/// A temperature above this is one, too.
const TEMPERATURE_C_MAX: u32 = 200;

/// What the fast tier reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fast {
    pub utilization: Option<Utilization>,
    pub memory: Option<Memory>,
    pub thermal: Option<Thermal>,
    pub power: Option<Power>,
    pub clocks: Option<Clocks>,
    pub recovery_action: Option<u32>,
}

/// What the medium tier reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Medium {
    pub ecc: Option<Ecc>,
    pub pcie: Option<Pcie>,
    pub mig: Option<Mig>,
    pub processes: Option<Processes>,
}

/// Figures that hardly change, read by the slow tier and sent with the fast groups.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    slowdown_c: Option<u32>,
    shutdown_c: Option<u32>,
    power_mw: Option<u32>,
    sm_max_mhz: Option<u32>,
    memory_max_mhz: Option<u32>,
    link_generation_max: Option<u32>,
    link_width_max: Option<u32>,
}

pub struct Device {
    handle: Handle,
    pub identity: Identity,
    silent: BTreeSet<Function>,
    silent_fields: BTreeSet<u32>,
    /// Figures that no call gives on this GPU, by the name of the newest call.
    unsupported: BTreeSet<String>,
    limits: Limits,
    energy_mj: Option<u64>,
    pcie_before: Option<(Instant, u64, u64)>,
    mig_before: Option<bool>,
}

type Ask<T> = fn(&Session, Handle) -> Result<T, Failure>;

impl Device {
    /// Opens the GPU at `index` and asks who it is.
    ///
    /// # Errors
    /// Only when the GPU cannot be opened or is lost; a GPU without a readable UUID is named by index.
    pub fn attach(session: &Session, index: u32) -> Result<Self, Failure> {
        let handle = session.handle(index)?;
        let mut device = Self {
            handle,
            identity: Identity { index, ..Identity::default() },
            silent: BTreeSet::new(),
            silent_fields: BTreeSet::new(),
            unsupported: BTreeSet::new(),
            limits: Limits::default(),
            energy_mj: None,
            pcie_before: None,
            mig_before: None,
        };
        use Function as F;
        let uuid = device.figure(session, [(F::nvmlDeviceGetUUID, Session::uuid)])?;
        // A GPU lost from here on has a name to be reported under; the next call says that it is lost.
        let name = device.figure(session, [(F::nvmlDeviceGetName, Session::name)]);
        let pci = device.figure(session, [(F::nvmlDeviceGetPciInfo_v3, Session::pci_bus_id)]);
        let architecture =
            device.figure(session, [(F::nvmlDeviceGetArchitecture, Session::architecture)]);
        let (name, pci) = (unless_lost(name)?, unless_lost(pci)?);
        let architecture = unless_lost(architecture)?;
        device.identity.uuid = uuid.unwrap_or_else(|| placeholder(index));
        device.identity.name = name.unwrap_or_default();
        device.identity.pci_bus_id = pci.unwrap_or_default();
        device.identity.architecture = architecture.map(architecture_name).unwrap_or_default();
        Ok(device)
    }

    #[must_use]
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// Whether the handle still means the same GPU; `false` asks for a new opening of the library.
    ///
    /// # Errors
    /// As the driver says, when that is not about the handle.
    pub fn is_same(&self, session: &Session) -> Result<bool, Failure> {
        if is_placeholder(&self.identity.uuid) {
            return Ok(true);
        }
        match session.uuid(self.handle) {
            Ok(uuid) => Ok(uuid == self.identity.uuid),
            Err(Failure::Stale(_) | Failure::Other(Code(2))) => Ok(false),
            Err(failure @ (Failure::Lost(_) | Failure::Abandoned)) => Err(failure),
            Err(Failure::Unsupported(_) | Failure::Other(_)) => Ok(true),
        }
    }

    /// Names of the calls that give nothing on this GPU.
    #[must_use]
    pub fn unsupported(&self) -> Vec<String> {
        let fields = self.silent_fields.iter().map(|id| format!("field:{id}"));
        self.unsupported.iter().cloned().chain(fields).collect()
    }

    /// The first call of `options` that gives a value; `None` if none does.
    fn figure<T, const N: usize>(
        &mut self,
        session: &Session,
        options: [(Function, Ask<T>); N],
    ) -> Result<Option<T>, Failure> {
        let newest = options.first().map(|(function, _)| function.name()).unwrap_or_default();
        let mut transient = false;
        for (function, ask) in options {
            if self.silent.contains(&function) {
                continue;
            }
            match ask(session, self.handle) {
                Ok(value) => {
                    self.unsupported.remove(newest);
                    return Ok(Some(value));
                }
                Err(Failure::Unsupported(_)) => {
                    self.silent.insert(function);
                }
                Err(Failure::Other(_)) => transient = true,
                Err(failure) => return Err(failure),
            }
        }
        if !transient && !self.unsupported.contains(newest) {
            self.unsupported.insert(newest.into());
        }
        Ok(None)
    }

    fn fields<const N: usize>(
        &mut self,
        session: &Session,
        ids: [u32; N],
    ) -> Result<[Option<FieldValue>; N], Failure> {
        if self.silent.contains(&Function::nvmlDeviceGetFieldValues)
            || ids.iter().all(|id| self.silent_fields.contains(id))
        {
            return Ok([None; N]);
        }
        let answers = match session.fields(self.handle, ids) {
            Ok(answers) => answers,
            Err(Failure::Unsupported(_)) => {
                self.silent.insert(Function::nvmlDeviceGetFieldValues);
                self.unsupported.insert(Function::nvmlDeviceGetFieldValues.name().into());
                return Ok([None; N]);
            }
            Err(Failure::Other(_)) => return Ok([None; N]),
            Err(failure) => return Err(failure),
        };
        for (id, answer) in ids.iter().zip(&answers) {
            if matches!(answer, Err(Failure::Unsupported(_))) {
                self.silent_fields.insert(*id);
            }
        }
        Ok(answers.map(Result::ok))
    }

    /// Load, memory, temperature, power, clocks and the driver's own verdict.
    ///
    /// # Errors
    /// The GPU is lost, the handle is void, or this thread was given up.
    pub fn fast(&mut self, session: &Session) -> Result<Fast, Failure> {
        use Function as F;
        let percent = |value: &u32| *value <= PERCENT_MAX;
        let rates =
            self.figure(session, [(F::nvmlDeviceGetUtilizationRates, Session::utilization)])?;
        let encoder =
            self.figure(session, [(F::nvmlDeviceGetEncoderUtilization, Session::encoder)])?;
        let decoder =
            self.figure(session, [(F::nvmlDeviceGetDecoderUtilization, Session::decoder)])?;
        let memory = self.figure(
            session,
            [
                (F::nvmlDeviceGetMemoryInfo_v2, Session::memory),
                (F::nvmlDeviceGetMemoryInfo, Session::memory_old),
            ],
        )?;
        let temperature = self.figure(
            session,
            [
                (F::nvmlDeviceGetTemperatureV, Session::temperature),
                (F::nvmlDeviceGetTemperature, Session::temperature_old),
            ],
        )?;
        let reasons = self.figure(
            session,
            [
                (F::nvmlDeviceGetCurrentClocksEventReasons, Session::event_reasons),
                (F::nvmlDeviceGetCurrentClocksThrottleReasons, Session::event_reasons_old),
            ],
        )?;
        let sm_mhz = self.figure(session, [(F::nvmlDeviceGetClockInfo, Session::sm_clock)])?;
        let memory_mhz =
            self.figure(session, [(F::nvmlDeviceGetClockInfo, Session::memory_clock)])?;
        let performance_state =
            self.figure(session, [(F::nvmlDeviceGetPerformanceState, Session::performance_state)])?;
        let draw_mw = self.figure(session, [(F::nvmlDeviceGetPowerUsage, Session::power_mw)])?;
        let [recovery, memory_c] =
            self.fields(session, [field::RECOVERY_ACTION, field::MEMORY_TEMPERATURE])?;
        let small = |value: Option<FieldValue>| {
            value.and_then(FieldValue::unsigned).and_then(|v| u32::try_from(v).ok())
        };
        let degrees = |value: &u32| *value <= TEMPERATURE_C_MAX;
        let limits = self.limits;
        Ok(Fast {
            utilization: some_of(Utilization {
                sm_percent: rates.map(|r| r.0).filter(percent),
                memory_percent: rates.map(|r| r.1).filter(percent),
                encoder_percent: encoder.filter(percent),
                decoder_percent: decoder.filter(percent),
            }),
            memory: memory.map(|info| Memory {
                total_bytes: info.total_bytes,
                free_bytes: info.free_bytes,
                used_bytes: info.used_bytes,
                reserved_bytes: info.reserved_bytes,
            }),
            thermal: some_of(Thermal {
                temperature_c: temperature.filter(degrees),
                slowdown_c: limits.slowdown_c,
                shutdown_c: limits.shutdown_c,
                memory_temperature_c: small(memory_c).filter(degrees),
            }),
            power: some_of(Power { draw_mw, limit_mw: limits.power_mw, energy_mj: self.energy_mj }),
            clocks: some_of(Clocks {
                sm_mhz,
                sm_max_mhz: limits.sm_max_mhz,
                memory_mhz,
                memory_max_mhz: limits.memory_max_mhz,
                event_reasons: reasons,
                performance_state,
            }),
            recovery_action: small(recovery),
        })
    }

    /// Error counters, bus, instances and, when asked for, processes.
    ///
    /// # Errors
    /// As [`Device::fast`].
    pub fn medium(&mut self, session: &Session, processes: Listing) -> Result<Medium, Failure> {
        use Function as F;
        self.energy_mj =
            self.figure(session, [(F::nvmlDeviceGetTotalEnergyConsumption, Session::energy_mj)])?;
        let mig = self.mig(session)?;
        let processes = match processes {
            Listing::Off => None,
            Listing::On => self.figure(
                session,
                [
                    (F::nvmlDeviceGetComputeRunningProcesses_v3, Session::processes),
                    (F::nvmlDeviceGetComputeRunningProcesses_v2, Session::processes_old),
                ],
            )?,
        };
        let process = |p: &crate::nvml::Running| Process {
            pid: p.pid,
            used_memory_bytes: p.used_memory_bytes,
        };
        Ok(Medium {
            ecc: some_of(self.ecc(session)?),
            pcie: some_of(self.pcie(session)?),
            mig,
            processes: processes
                .map(|list| Processes { compute: list.iter().map(process).collect() }),
        })
    }

    fn ecc(&mut self, session: &Session) -> Result<Ecc, Failure> {
        use Function::nvmlDeviceGetTotalEccErrors as TOTAL;
        let enabled =
            self.figure(session, [(Function::nvmlDeviceGetEccMode, Session::ecc_enabled)])?;
        let mut ecc = Ecc { enabled, ..Ecc::default() };
        // Counters of a GPU whose ECC is off answer NOT_SUPPORTED, which ends when it is turned on.
        if enabled != Some(false) {
            ecc.volatile_corrected =
                self.figure(session, [(TOTAL, Session::volatile_corrected)])?;
            ecc.volatile_uncorrected =
                self.figure(session, [(TOTAL, Session::volatile_uncorrected)])?;
            ecc.aggregate_corrected =
                self.figure(session, [(TOTAL, Session::aggregate_corrected)])?;
            ecc.aggregate_uncorrected =
                self.figure(session, [(TOTAL, Session::aggregate_uncorrected)])?;
        }
        let rows =
            self.figure(session, [(Function::nvmlDeviceGetRemappedRows, Session::remapped)])?;
        if let Some(rows) = rows {
            ecc.remapped_rows_corrected = Some(rows.corrected);
            ecc.remapped_rows_uncorrected = Some(rows.uncorrected);
            ecc.remap_pending = Some(rows.pending);
            ecc.remap_failure = Some(rows.failure);
        } else {
            let values = self.fields(
                session,
                [
                    field::REMAPPED_CORRECTED,
                    field::REMAPPED_UNCORRECTED,
                    field::REMAPPED_PENDING,
                    field::REMAPPED_FAILURE,
                ],
            )?;
            let [corrected, uncorrected, pending, failure] =
                values.map(|v| v.and_then(FieldValue::unsigned));
            ecc.remapped_rows_corrected = corrected.and_then(|v| u32::try_from(v).ok());
            ecc.remapped_rows_uncorrected = uncorrected.and_then(|v| u32::try_from(v).ok());
            ecc.remap_pending = pending.map(|v| v != 0);
            ecc.remap_failure = failure.map(|v| v != 0);
        }
        // A GPU either remaps rows or, before Ampere, retires pages.
        if ecc.remapped_rows_uncorrected.is_none() {
            ecc.retired_pages = self
                .figure(session, [(Function::nvmlDeviceGetRetiredPages, Session::retired_pages)])?;
        }
        Ok(ecc)
    }

    fn pcie(&mut self, session: &Session) -> Result<Pcie, Failure> {
        use Function as F;
        let [tx, rx] = self.fields(session, [field::PCIE_TX_BYTES, field::PCIE_RX_BYTES])?;
        let counters = tx.and_then(FieldValue::unsigned).zip(rx.and_then(FieldValue::unsigned));
        let (tx_rate, rx_rate) = match counters {
            Some((tx, rx)) => self.pcie_rates(Instant::now(), tx, rx).unzip(),
            // Blocks 20 ms each, hence only where the counters are not to be had.
            None => {
                let tx = self
                    .figure(session, [(F::nvmlDeviceGetPcieThroughput, Session::pcie_tx_kib_s)])?;
                let rx = self
                    .figure(session, [(F::nvmlDeviceGetPcieThroughput, Session::pcie_rx_kib_s)])?;
                (tx.map(|kib| u64::from(kib) << 10), rx.map(|kib| u64::from(kib) << 10))
            }
        };
        Ok(Pcie {
            tx_bytes_per_second: tx_rate,
            rx_bytes_per_second: rx_rate,
            link_generation: self.figure(
                session,
                [(F::nvmlDeviceGetCurrPcieLinkGeneration, Session::pcie_generation)],
            )?,
            link_generation_max: self.limits.link_generation_max,
            link_width: self
                .figure(session, [(F::nvmlDeviceGetCurrPcieLinkWidth, Session::pcie_width)])?,
            link_width_max: self.limits.link_width_max,
            replay_count: self
                .figure(session, [(F::nvmlDeviceGetPcieReplayCounter, Session::pcie_replay)])?,
        })
    }

    /// Bytes a second since the last reading; nothing when a counter went back.
    fn pcie_rates(&mut self, now: Instant, tx: u64, rx: u64) -> Option<(u64, u64)> {
        let (then, tx_before, rx_before) = self.pcie_before.replace((now, tx, rx))?;
        let millis = u64::try_from(now.duration_since(then).as_millis()).ok()?;
        let rate =
            |new: u64, old: u64| new.checked_sub(old)?.checked_mul(1_000)?.checked_div(millis);
        rate(tx, tx_before).zip(rate(rx, rx_before))
    }

    fn mig(&mut self, session: &Session) -> Result<Option<Mig>, Failure> {
        let enabled =
            self.figure(session, [(Function::nvmlDeviceGetMigMode, Session::mig_enabled)])?;
        // Cutting a GPU changes what it supports, so everything is asked anew.
        if self.mig_before.is_some() && self.mig_before != enabled {
            self.forget_unsupported();
        }
        self.mig_before = enabled;
        let Some(enabled) = enabled else { return Ok(None) };
        let mut mig = Mig { enabled, instances: Vec::new() };
        if enabled {
            let places = self
                .figure(
                    session,
                    [(Function::nvmlDeviceGetMaxMigDeviceCount, Session::mig_count_max)],
                )?
                .unwrap_or(0)
                .min(64);
            for place in 0..places {
                match session.mig_instance(self.handle, place) {
                    Ok(handle) => mig.instances.push(mig_instance(session, handle)?),
                    Err(failure @ (Failure::Lost(_) | Failure::Stale(_) | Failure::Abandoned)) => {
                        return Err(failure);
                    }
                    // NOT_FOUND is a hole; others may follow.
                    Err(Failure::Unsupported(_) | Failure::Other(_)) => {}
                }
            }
        }
        Ok(Some(mig))
    }

    /// Limits and maxima; also gives calls that were unsupported another chance.
    ///
    /// # Errors
    /// As [`Device::fast`].
    pub fn slow(&mut self, session: &Session) -> Result<(), Failure> {
        use Function as F;
        self.forget_unsupported();
        let slowdown = self.figure(
            session,
            [(F::nvmlDeviceGetTemperatureThreshold, Session::slowdown_threshold)],
        )?;
        let shutdown = self.figure(
            session,
            [(F::nvmlDeviceGetTemperatureThreshold, Session::shutdown_threshold)],
        )?;
        let (slowdown_c, shutdown_c) = match (slowdown, shutdown) {
            (None, None) => self.limits_from_margin(session)?,
            known => known,
        };
        self.limits = Limits {
            slowdown_c,
            shutdown_c,
            power_mw: self
                .figure(session, [(F::nvmlDeviceGetEnforcedPowerLimit, Session::power_limit_mw)])?,
            sm_max_mhz: self
                .figure(session, [(F::nvmlDeviceGetMaxClockInfo, Session::sm_clock_max)])?,
            memory_max_mhz: self
                .figure(session, [(F::nvmlDeviceGetMaxClockInfo, Session::memory_clock_max)])?,
            link_generation_max: self.figure(
                session,
                [(F::nvmlDeviceGetMaxPcieLinkGeneration, Session::pcie_generation_max)],
            )?,
            link_width_max: self
                .figure(session, [(F::nvmlDeviceGetMaxPcieLinkWidth, Session::pcie_width_max)])?,
        };
        Ok(())
    }

    /// Newer GPUs give limits as a distance: limit = temperature + margin − limit's own distance.
    fn limits_from_margin(
        &mut self,
        session: &Session,
    ) -> Result<(Option<u32>, Option<u32>), Failure> {
        let margin =
            self.figure(session, [(Function::nvmlDeviceGetMarginTemperature, Session::margin_c)])?;
        let temperature = self.figure(
            session,
            [
                (Function::nvmlDeviceGetTemperatureV, Session::temperature),
                (Function::nvmlDeviceGetTemperature, Session::temperature_old),
            ],
        )?;
        let [shutdown, slowdown] =
            self.fields(session, [field::SHUTDOWN_LIMIT, field::SLOWDOWN_LIMIT])?;
        let limit = |distance: Option<FieldValue>| {
            let top = i64::from(temperature?) + i64::from(margin?);
            u32::try_from(top - distance?.signed()?).ok().filter(|c| *c <= TEMPERATURE_C_MAX)
        };
        Ok((limit(slowdown), limit(shutdown)))
    }

    fn forget_unsupported(&mut self) {
        self.silent.clear();
        self.silent_fields.clear();
    }
}

fn unless_lost<T>(answer: Result<Option<T>, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Err(Failure::Lost(_)) => Ok(None),
        other => other,
    }
}

/// Whether processes are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    Off,
    On,
}

fn mig_instance(session: &Session, handle: Handle) -> Result<MigInstance, Failure> {
    fn known<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match answer {
            Ok(value) => Ok(Some(value)),
            Err(Failure::Unsupported(_) | Failure::Other(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
    let memory = known(session.memory(handle))?;
    Ok(MigInstance {
        uuid: known(session.uuid(handle))?.unwrap_or_default(),
        gpu_instance_id: known(session.gpu_instance_id(handle))?,
        compute_instance_id: known(session.compute_instance_id(handle))?,
        memory_total_bytes: memory.and_then(|m| m.total_bytes),
        memory_used_bytes: memory.and_then(|m| m.used_bytes),
    })
}

/// A group in which nothing is known is no group.
fn some_of<T: Default + PartialEq>(group: T) -> Option<T> {
    (group != T::default()).then_some(group)
}

/// Name of a GPU that has not told its UUID.
#[must_use]
pub fn placeholder(index: u32) -> String {
    format!("index-{index}")
}

#[must_use]
pub fn is_placeholder(uuid: &str) -> bool {
    uuid.starts_with("index-")
}

/// A number newer than this list is data, not an error.
fn architecture_name(number: u32) -> String {
    let names: BTreeMap<u32, &str> = BTreeMap::from([
        (2, "kepler"),
        (3, "maxwell"),
        (4, "pascal"),
        (5, "volta"),
        (6, "turing"),
        (7, "ampere"),
        (8, "ada"),
        (9, "hopper"),
        (10, "blackwell"),
    ]);
    names.get(&number).map_or_else(|| format!("unknown-{number}"), |name| (*name).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_architecture_newer_than_the_list_is_named_by_number() {
        assert_eq!(architecture_name(9), "hopper");
        assert_eq!(architecture_name(11), "unknown-11");
    }

    #[test]
    fn a_group_without_a_known_figure_is_absent() {
        assert_eq!(some_of(Utilization::default()), None);
        let zero = Utilization { sm_percent: Some(0), ..Utilization::default() };
        assert_eq!(some_of(zero), Some(zero));
    }
}
