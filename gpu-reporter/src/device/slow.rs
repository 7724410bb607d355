//! The slow tier: limits and maxima, and another chance for what was unsupported.

use super::{Device, plausible, way, way_for};
use crate::nvml::{Failure, FieldValue, Function as F, Session};

const SHUTDOWN_LIMIT: u32 = 193;
const SLOWDOWN_LIMIT: u32 = 194;

/// Figures that hardly change; they are sent with the groups they belong to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub(super) slowdown_c: Option<u32>,
    pub(super) shutdown_c: Option<u32>,
    pub(super) power_mw: Option<u32>,
    pub(super) sm_max_mhz: Option<u32>,
    pub(super) memory_max_mhz: Option<u32>,
    pub(super) link_generation_max: Option<u32>,
    pub(super) link_width_max: Option<u32>,
}

impl Device {
    /// Reads the limits.
    ///
    /// # Errors
    /// As [`Device::fast`].
    pub fn slow(&mut self, session: &Session) -> Result<(), Failure> {
        self.forget_unsupported();
        let threshold = F::nvmlDeviceGetTemperatureThreshold;
        let slowdown = self
            .figure(session, [way_for(threshold, "slowdown", Session::slowdown_threshold)])?
            .and_then(plausible::degrees);
        let shutdown = self
            .figure(session, [way_for(threshold, "shutdown", Session::shutdown_threshold)])?
            .and_then(plausible::degrees);
        let (slowdown_c, shutdown_c) = match (slowdown, shutdown) {
            (None, None) => self.limits_from_margin(session)?,
            known => known,
        };
        let power = self
            .figure(session, [way(F::nvmlDeviceGetEnforcedPowerLimit, Session::power_limit_mw)])?;
        let clock = F::nvmlDeviceGetMaxClockInfo;
        let sm = self.figure(session, [way_for(clock, "sm", Session::sm_clock_max)])?;
        let memory = self.figure(session, [way_for(clock, "memory", Session::memory_clock_max)])?;
        let generation = self.figure(
            session,
            [way(F::nvmlDeviceGetMaxPcieLinkGeneration, Session::pcie_generation_max)],
        )?;
        let width =
            self.figure(session, [way(F::nvmlDeviceGetMaxPcieLinkWidth, Session::pcie_width_max)])?;
        self.limits = Limits {
            slowdown_c,
            shutdown_c,
            power_mw: power.and_then(plausible::milliwatts),
            sm_max_mhz: sm.and_then(plausible::megahertz),
            memory_max_mhz: memory.and_then(plausible::megahertz),
            link_generation_max: generation.and_then(plausible::link_generation),
            link_width_max: width.and_then(plausible::link_width),
        };
        Ok(())
    }

    /// Newer GPUs give limits as a distance: limit = temperature + margin − the limit's own distance.
    fn limits_from_margin(
        &mut self,
        session: &Session,
    ) -> Result<(Option<u32>, Option<u32>), Failure> {
        let margin =
            self.figure(session, [way(F::nvmlDeviceGetMarginTemperature, Session::margin_c)])?;
        let temperature = self.temperature(session)?;
        let [shutdown, slowdown] = self.fields(session, [SHUTDOWN_LIMIT, SLOWDOWN_LIMIT])?;
        let limit = |distance: Option<FieldValue>| {
            let top = i64::from(temperature?) + i64::from(margin?);
            u32::try_from(top.checked_sub(distance?.signed()?)?).ok().and_then(plausible::degrees)
        };
        Ok((limit(slowdown), limit(shutdown)))
    }
}
