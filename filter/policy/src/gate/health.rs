//! How much of each endpoint's capacity may be used now, and what can be done with a request.
//!
//! Health of an endpoint = gate × success factor × ramp. When the healthy capacity of those that are up
//! falls under half of all capacity that should be there (panic), gates and success rates are ignored
//! and only hard-down ones stay out: spreading over doubtful endpoints beats piling up on the few
//! healthy ones. Capacity counts, not the number of endpoints. The ramp does not count towards panic,
//! or every start would be one; draining endpoints are meant to leave and are not missed.
//!
//! On higher rungs less is believed: weights become those of the GPU type, then equal; gates and the
//! fleet's success rates are dropped with the weights, own success rates stay.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use super::service::{Endpoint, Service, Standing};
use crate::{
    decision::PickReason,
    ladder::Rung,
    ramp,
    snapshot::{self, Hard},
    success,
    units::{Span, Time},
};

/// Healthy capacity under this share of all capacity is panic.
const PANIC_SHARE: f64 = 0.5;

impl Service {
    /// Sets weight and health of every row by the rung in force.
    pub(super) fn derive(&mut self, now: Time) -> Standing {
        for row in self.table.rows_mut() {
            row.health = 0.0;
        }
        if self.rung == Rung::NoSnapshot {
            return Standing::NoSnapshot;
        }
        let hard = |kind: Hard| {
            self.endpoints.iter().filter(move |e| e.data.as_ref().is_some_and(|d| d.hard == kind))
        };
        let (up, draining, down) =
            (hard(Hard::Up).count(), hard(Hard::Draining).count(), hard(Hard::Down).count());
        match (up, draining, down) {
            (0, 0, 0) => Standing::NoEndpoints,
            (0, 0, _) => Standing::Down,
            (0, _, _) => {
                self.set_weights(now);
                self.set_health(Hard::Draining, |_| 1.0);
                Standing::Ready(Some(PickReason::Draining))
            }
            _ => {
                self.set_weights(now);
                self.derive_up(now)
            }
        }
    }

    fn derive_up(&mut self, now: Time) -> Standing {
        let believes_gates = self.rung <= Rung::CountsIgnored;
        let rate = |e: &Endpoint, data: &snapshot::Endpoint| {
            let fleet = data.success.filter(|_| believes_gates).map_or(1.0, |bp| bp.ratio());
            e.success.value(now).min(fleet)
        };
        let mut rates = core::mem::take(&mut self.rates);
        rates.clear();
        for (e, data) in self.endpoints.iter().filter_map(|e| Some((e, e.data.as_ref()?))) {
            if data.hard == Hard::Up {
                rates.push(rate(e, data));
            }
        }
        let median = success::median(&mut rates);
        self.rates = rates;
        let soft = |e: &Endpoint, data: &snapshot::Endpoint| {
            let gate = if believes_gates { data.gate.ratio() } else { 1.0 };
            gate * success::factor(rate(e, data), median)
        };
        let (mut healthy, mut all) = (0.0, 0.0);
        for (row, e) in self.table.rows().iter().zip(&self.endpoints) {
            match &e.data {
                Some(data) if data.hard == Hard::Up => {
                    healthy += row.weight * soft(e, data);
                    all += row.weight;
                }
                Some(data) if data.hard == Hard::Down => all += row.weight,
                // A draining endpoint is meant to leave; its capacity is not missed.
                _ => {}
            }
        }
        let slow_start = self.slow_start;
        let ramp = |data: &snapshot::Endpoint| {
            let healthy_for = ramp::healthy_for(data.healthy_for, data.listed, now);
            ramp::ramp(healthy_for, slow_start)
        };
        let is_panic = healthy < PANIC_SHARE * all;
        for (row, e) in self.table.rows_mut().iter_mut().zip(&self.endpoints) {
            if let Some(data) = e.data.as_ref().filter(|data| data.hard == Hard::Up) {
                row.health = ramp(data) * if is_panic { 1.0 } else { soft(e, data) };
            }
        }
        Standing::Ready(is_panic.then_some(PickReason::Panic))
    }

    fn set_health(&mut self, of: Hard, health: impl Fn(&snapshot::Endpoint) -> f64) {
        for (row, e) in self.table.rows_mut().iter_mut().zip(&self.endpoints) {
            if let Some(data) = e.data.as_ref().filter(|data| data.hard == of) {
                row.health = health(data);
            }
        }
    }

    /// Capacity by rung: measured, by GPU type, or all alike.
    fn set_weights(&mut self, now: Time) {
        let is_new = |data: &snapshot::Endpoint| {
            let healthy_for = ramp::healthy_for(data.healthy_for, data.listed, now);
            self.slow_start > Span::ZERO && healthy_for.is_some_and(|h| h < ramp::WEIGHT_UNKNOWN)
        };
        let mut medians: BTreeMap<Arc<str>, Option<f64>> = BTreeMap::new();
        if self.rung <= Rung::CountsIgnored {
            for data in self.endpoints.iter().filter_map(|e| e.data.as_ref()) {
                if is_new(data) && !medians.contains_key(&data.gpu_type) {
                    let settled = self.endpoints.iter().filter_map(|e| e.data.as_ref());
                    let mut weights: Vec<f64> = settled
                        .filter(|d| d.gpu_type == data.gpu_type && !is_new(d))
                        .map(|d| f64::from(d.weight.get()))
                        .collect();
                    let median = (!weights.is_empty()).then(|| success::median(&mut weights));
                    medians.insert(data.gpu_type.clone(), median);
                }
            }
        }
        let weights = self.endpoints.iter().map(|e| match (&e.data, self.rung) {
            (None, _) | (_, Rung::NoSnapshot | Rung::EqualWeights) => 1.0,
            (Some(data), Rung::TypeCapacity) => f64::from(data.type_weight.get()),
            (Some(data), Rung::Full | Rung::Ageing | Rung::CountsIgnored) => {
                let median = medians.get(&data.gpu_type).copied().flatten();
                match median.filter(|_| is_new(data)) {
                    Some(median) => median,
                    None => f64::from(data.weight.get()),
                }
            }
        });
        for (row, weight) in self.table.rows_mut().iter_mut().zip(weights) {
            row.weight = weight;
        }
    }
}
