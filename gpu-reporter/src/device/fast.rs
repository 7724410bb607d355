//! The fast tier: what changes with every request.

use super::{Device, plausible, small, some_of, way, way_for};
use crate::{
    nvml::{Failure, Function as F, Session},
    sample::{Clocks, Memory, Power, Thermal, Utilization},
};

/// Field ids of nvml.h; all below 251, where drivers do not renumber.
const MEMORY_TEMPERATURE: u32 = 82;
const RECOVERY_ACTION: u32 = 230;

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

impl Device {
    /// Load, memory, temperature, power, clocks and the driver's own verdict.
    ///
    /// # Errors
    /// The GPU is lost, the handle is void, or this thread was given up.
    pub fn fast(&mut self, session: &Session) -> Result<Fast, Failure> {
        let utilization = self.utilization(session)?;
        let memory = self.figure(
            session,
            [
                way(F::nvmlDeviceGetMemoryInfo_v2, Session::memory),
                way(F::nvmlDeviceGetMemoryInfo, Session::memory_old),
            ],
        )?;
        let temperature_c = self.temperature(session)?;
        let draw = self.figure(session, [way(F::nvmlDeviceGetPowerUsage, Session::power_mw)])?;
        let clocks = self.clocks(session)?;
        let [recovery, memory_c] = self.fields(session, [RECOVERY_ACTION, MEMORY_TEMPERATURE])?;
        Ok(Fast {
            utilization: some_of(utilization),
            memory: memory.map(|info| {
                plausible::memory(Memory {
                    total_bytes: info.total_bytes,
                    free_bytes: info.free_bytes,
                    used_bytes: info.used_bytes,
                    reserved_bytes: info.reserved_bytes,
                })
            }),
            thermal: some_of(Thermal {
                temperature_c,
                slowdown_c: self.limits.slowdown_c,
                shutdown_c: self.limits.shutdown_c,
                memory_temperature_c: small(memory_c).and_then(plausible::degrees),
            }),
            power: some_of(Power {
                draw_mw: draw.and_then(plausible::milliwatts),
                limit_mw: self.limits.power_mw,
                energy_mj: self.energy_mj,
            }),
            clocks: some_of(clocks),
            recovery_action: small(recovery),
        })
    }

    fn utilization(&mut self, session: &Session) -> Result<Utilization, Failure> {
        let rates =
            self.figure(session, [way(F::nvmlDeviceGetUtilizationRates, Session::utilization)])?;
        let encoder =
            self.figure(session, [way(F::nvmlDeviceGetEncoderUtilization, Session::encoder)])?;
        let decoder =
            self.figure(session, [way(F::nvmlDeviceGetDecoderUtilization, Session::decoder)])?;
        let (sm, memory) = rates.unzip();
        Ok(Utilization {
            sm_percent: sm.and_then(plausible::percent),
            memory_percent: memory.and_then(plausible::percent),
            encoder_percent: encoder.and_then(plausible::percent),
            decoder_percent: decoder.and_then(plausible::percent),
        })
    }

    pub(super) fn temperature(&mut self, session: &Session) -> Result<Option<u32>, Failure> {
        let degrees = self.figure(
            session,
            [
                way(F::nvmlDeviceGetTemperatureV, Session::temperature),
                way(F::nvmlDeviceGetTemperature, Session::temperature_old),
            ],
        )?;
        Ok(degrees.and_then(plausible::degrees))
    }

    fn clocks(&mut self, session: &Session) -> Result<Clocks, Failure> {
        let event_reasons = self.figure(
            session,
            [
                way(F::nvmlDeviceGetCurrentClocksEventReasons, Session::event_reasons),
                way(F::nvmlDeviceGetCurrentClocksThrottleReasons, Session::event_reasons_old),
            ],
        )?;
        let sm =
            self.figure(session, [way_for(F::nvmlDeviceGetClockInfo, "sm", Session::sm_clock)])?;
        let memory = self.figure(
            session,
            [way_for(F::nvmlDeviceGetClockInfo, "memory", Session::memory_clock)],
        )?;
        let state = self
            .figure(session, [way(F::nvmlDeviceGetPerformanceState, Session::performance_state)])?;
        Ok(Clocks {
            sm_mhz: sm.and_then(plausible::megahertz),
            sm_max_mhz: self.limits.sm_max_mhz,
            memory_mhz: memory.and_then(plausible::megahertz),
            memory_max_mhz: self.limits.memory_max_mhz,
            event_reasons,
            performance_state: state.and_then(plausible::performance_state),
        })
    }
}
