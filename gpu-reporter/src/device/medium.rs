//! The medium tier: error counters, bus, instances and, when asked for, processes.

use std::time::Instant;

use super::{Device, plausible, small, some_of, way, way_for};
use crate::{
    nvml::{Failure, FieldValue, Function as F, Handle, Running, Session},
    sample::{Ecc, Mig, MigInstance, Pcie, Process, Processes},
};

const REMAPPED_CORRECTED: u32 = 142;
const REMAPPED_UNCORRECTED: u32 = 143;
const REMAPPED_PENDING: u32 = 144;
const REMAPPED_FAILURE: u32 = 145;
const PCIE_TX_BYTES: u32 = 197;
const PCIE_RX_BYTES: u32 = 198;

/// Most processes and instances that are told of one GPU.
const PROCESSES_MAX: usize = 256;
const INSTANCES_MAX: u32 = 64;

/// What the medium tier reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Medium {
    pub ecc: Option<Ecc>,
    pub pcie: Option<Pcie>,
    pub mig: Option<Mig>,
    pub processes: Option<Processes>,
}

/// Whether processes are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    Off,
    On,
}

impl Device {
    /// Reads the tier.
    ///
    /// # Errors
    /// As [`Device::fast`].
    pub fn medium(&mut self, session: &Session, listing: Listing) -> Result<Medium, Failure> {
        self.energy_mj = self
            .figure(session, [way(F::nvmlDeviceGetTotalEnergyConsumption, Session::energy_mj)])?;
        let mig = self.mig(session)?;
        let processes = match listing {
            Listing::Off => None,
            Listing::On => self.figure(
                session,
                [
                    way(F::nvmlDeviceGetComputeRunningProcesses_v3, Session::processes),
                    way(F::nvmlDeviceGetComputeRunningProcesses_v2, Session::processes_old),
                ],
            )?,
        };
        let process = |p: &Running| Process { pid: p.pid, used_memory_bytes: p.used_memory_bytes };
        Ok(Medium {
            ecc: some_of(self.ecc(session)?),
            pcie: some_of(self.pcie(session)?),
            mig,
            processes: processes.map(|list| Processes {
                compute: list.iter().take(PROCESSES_MAX).map(process).collect(),
            }),
        })
    }

    fn ecc(&mut self, session: &Session) -> Result<Ecc, Failure> {
        let enabled = self.figure(session, [way(F::nvmlDeviceGetEccMode, Session::ecc_enabled)])?;
        let mut ecc = Ecc { enabled, ..Ecc::default() };
        // Counters of a GPU whose ECC is off answer NOT_SUPPORTED, which ends when it is turned on.
        if enabled != Some(false) {
            let total = F::nvmlDeviceGetTotalEccErrors;
            let mut count = |subject, ask| self.figure(session, [way_for(total, subject, ask)]);
            ecc.volatile_corrected = count("volatile_corrected", Session::volatile_corrected)?;
            ecc.volatile_uncorrected =
                count("volatile_uncorrected", Session::volatile_uncorrected)?;
            ecc.aggregate_corrected = count("aggregate_corrected", Session::aggregate_corrected)?;
            ecc.aggregate_uncorrected =
                count("aggregate_uncorrected", Session::aggregate_uncorrected)?;
        }
        self.rows(session, &mut ecc)?;
        // A GPU either remaps rows or, before Ampere, retires pages.
        if ecc.remapped_rows_uncorrected.is_none() {
            ecc.retired_pages =
                self.figure(session, [way(F::nvmlDeviceGetRetiredPages, Session::retired_pages)])?;
        }
        Ok(ecc)
    }

    fn rows(&mut self, session: &Session, ecc: &mut Ecc) -> Result<(), Failure> {
        let rows = self.figure(session, [way(F::nvmlDeviceGetRemappedRows, Session::remapped)])?;
        if let Some(rows) = rows {
            ecc.remapped_rows_corrected = Some(rows.corrected);
            ecc.remapped_rows_uncorrected = Some(rows.uncorrected);
            ecc.remap_pending = Some(rows.pending);
            ecc.remap_failure = Some(rows.failure);
            return Ok(());
        }
        let ids = [REMAPPED_CORRECTED, REMAPPED_UNCORRECTED, REMAPPED_PENDING, REMAPPED_FAILURE];
        let [corrected, uncorrected, pending, failure] = self.fields(session, ids)?;
        ecc.remapped_rows_corrected = small(corrected);
        ecc.remapped_rows_uncorrected = small(uncorrected);
        ecc.remap_pending = small(pending).map(|v| v != 0);
        ecc.remap_failure = small(failure).map(|v| v != 0);
        Ok(())
    }

    fn pcie(&mut self, session: &Session) -> Result<Pcie, Failure> {
        let [tx, rx] = self.fields(session, [PCIE_TX_BYTES, PCIE_RX_BYTES])?;
        let counters = tx.and_then(FieldValue::unsigned).zip(rx.and_then(FieldValue::unsigned));
        let (tx_rate, rx_rate) = match counters {
            Some((tx, rx)) => self.pcie_rates(Instant::now(), tx, rx).unzip(),
            None => self.pcie_throughput(session)?,
        };
        let generation = self.figure(
            session,
            [way(F::nvmlDeviceGetCurrPcieLinkGeneration, Session::pcie_generation)],
        )?;
        let width =
            self.figure(session, [way(F::nvmlDeviceGetCurrPcieLinkWidth, Session::pcie_width)])?;
        let replay_count =
            self.figure(session, [way(F::nvmlDeviceGetPcieReplayCounter, Session::pcie_replay)])?;
        Ok(Pcie {
            tx_bytes_per_second: tx_rate.and_then(plausible::bytes_per_second),
            rx_bytes_per_second: rx_rate.and_then(plausible::bytes_per_second),
            link_generation: generation.and_then(plausible::link_generation),
            link_generation_max: self.limits.link_generation_max,
            link_width: width.and_then(plausible::link_width),
            link_width_max: self.limits.link_width_max,
            replay_count,
        })
    }

    /// Blocks 20 ms for each direction, hence only where there are no counters.
    fn pcie_throughput(
        &mut self,
        session: &Session,
    ) -> Result<(Option<u64>, Option<u64>), Failure> {
        let call = F::nvmlDeviceGetPcieThroughput;
        let tx = self.figure(session, [way_for(call, "tx", Session::pcie_tx_kib_s)])?;
        let rx = self.figure(session, [way_for(call, "rx", Session::pcie_rx_kib_s)])?;
        let bytes = |kib: Option<u32>| kib.map(|kib| u64::from(kib) << 10);
        Ok((bytes(tx), bytes(rx)))
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
        let enabled = self.figure(session, [way(F::nvmlDeviceGetMigMode, Session::mig_enabled)])?;
        // Cutting a GPU changes what it supports, so everything is asked anew.
        if self.mig_before.is_some() && self.mig_before != enabled {
            self.forget_unsupported();
        }
        self.mig_before = enabled;
        let Some(enabled) = enabled else { return Ok(None) };
        let mut mig = Mig { enabled, instances: Vec::new() };
        if !enabled {
            return Ok(Some(mig));
        }
        let places =
            self.figure(session, [way(F::nvmlDeviceGetMaxMigDeviceCount, Session::mig_count_max)])?;
        for place in 0..places.unwrap_or(0).min(INSTANCES_MAX) {
            // NOT_FOUND is a hole; others may follow.
            if let Some(handle) = known(session.mig_instance(self.handle, place))? {
                mig.instances.push(instance(session, handle)?);
            }
        }
        Ok(Some(mig))
    }
}

fn instance(session: &Session, handle: Handle) -> Result<MigInstance, Failure> {
    let memory = known(session.memory(handle))?;
    let uuid = known(session.uuid(handle))?.unwrap_or_default();
    Ok(MigInstance {
        uuid: plausible::name(&uuid),
        gpu_instance_id: known(session.gpu_instance_id(handle))?,
        compute_instance_id: known(session.compute_instance_id(handle))?,
        memory_total_bytes: memory.and_then(|m| m.total_bytes),
        memory_used_bytes: memory.and_then(|m| m.used_bytes),
    })
}

/// A value, or that there is none this time; only what ends the reading is an error.
fn known<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Failure::Unsupported(_) | Failure::Other(_)) => Ok(None),
        Err(failure @ (Failure::Lost(_) | Failure::Stale(_) | Failure::Abandoned)) => Err(failure),
    }
}
