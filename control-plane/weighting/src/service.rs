//! One service's step: all of its endpoints are weighed against one another.
use alloc::{collections::BTreeMap, string::String, string::ToString, vec::Vec};

use tidegate_policy::units::{BasisPoints, PerMille, Span, Time, Weight};

use crate::{
    bind::{Binding, GpuKey, Reports},
    capacity::{self, Capacity},
    endpoint::{EndpointState, Observed},
    entropy::Indicator,
    explain::{Explanation, HoldReason, IndicatorFactor},
    freshness::{Freshness, freshness},
    gate::{GateFactor, GateReason},
    input::{EndpointDefinition, EndpointFeedback, ServiceFeedback},
    latch::GpuMemory,
    numbers::ewma,
    score::Scorer,
    settings::Settings,
    smooth,
    snapshot::{Alarm, EndpointSnapshot, HardState, ServiceSnapshot},
    success::{Arrivals, ServiceTime},
};

/// More than this part of a service's nodes silent at once is likely our own fault.
const MASS_SILENCE: f64 = 0.3;
/// Less than this part of the capacity eligible: rather a rule gone wrong than a fleet gone bad.
const ELIGIBLE_MIN: f64 = 0.5;
/// A gate from here on counts as eligible; what is throttled or jammed alone stays above it.
const ELIGIBLE_GATE_PM: u16 = 100;
const CAPACITY_TAU: Span = Span::secs(60);

/// What a step gives to each service.
pub(crate) struct Context<'a> {
    pub(crate) now: Time,
    pub(crate) dt: Span,
    pub(crate) settings: &'a Settings,
    pub(crate) reports: &'a Reports<'a>,
    pub(crate) gpus: &'a BTreeMap<GpuKey, GpuMemory>,
    pub(crate) feedback: &'a BTreeMap<(&'a str, &'a str), &'a EndpointFeedback>,
    pub(crate) arrivals: Option<&'a ServiceFeedback>,
    /// The control plane itself has only just started.
    pub(crate) is_starting: bool,
}

/// What is remembered of a service between steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceState {
    endpoints: BTreeMap<String, EndpointState>,
    scorer: Scorer,
    arrivals: Arrivals,
    service_time: ServiceTime,
}

impl ServiceState {
    pub(crate) fn bound_gpus(&self) -> impl Iterator<Item = &GpuKey> {
        self.endpoints.values().flat_map(|e| e.known_gpus.iter())
    }

    pub(crate) fn step(
        &mut self,
        name: &str,
        endpoints: &BTreeMap<&str, &EndpointDefinition>,
        context: &Context<'_>,
    ) -> (ServiceSnapshot, Vec<Alarm>) {
        self.follow_membership(endpoints);
        let bindings: Vec<Binding> =
            endpoints.values().map(|e| context.reports.bind(context.now, e)).collect();
        let is_mass_silence = is_mass_silence(context, &bindings);

        let mut observed = Vec::with_capacity(bindings.len());
        for ((address, definition), binding) in endpoints.iter().zip(&bindings) {
            let state = self.endpoints.entry((*address).to_string()).or_default();
            observed.push(state.observe(definition, binding, is_mass_silence, context));
        }

        let scores = self.score(&observed, is_mass_silence, context);
        let capacities = self.capacities(endpoints, &observed, context);
        let types: Vec<f64> = capacities.iter().map(|c| c.of_type).collect();
        let (target, shares) = self.shares(&scores, &capacities, &types, context.dt);
        let hold = self.hold_reason(&observed, &capacities, &shares);
        let weights = smooth::weights(&shares);
        let type_weights = smooth::weights(&smooth::shares(&types));

        let mut out = Vec::with_capacity(observed.len());
        for (i, (state, observed)) in self.endpoints.values_mut().zip(observed).enumerate() {
            let at = |list: &[f64]| list.get(i).copied().unwrap_or(0.0);
            let weight = weights.get(i).copied().unwrap_or(Weight::MIN);
            let (weight, gate) = state.publish(weight, &observed, hold);
            let is_held = hold
                .or((is_mass_silence && observed.freshness == Some(Freshness::Expired))
                    .then_some(HoldReason::MassSilence));
            let score = scores.get(i).copied().unwrap_or_default();
            let capacity = capacities.get(i).copied();
            let explanation = Explanation {
                gates: shown_factors(&observed),
                gate_raw: observed.verdict.gate,
                indicators: self.scorer.factors(i, &observed.indicators),
                score_raw: score.now,
                score: score.used,
                type_capacity: capacity.map_or(1.0, |c| c.of_type),
                learned_capacity: capacity.and_then(|c| c.learned),
                learned_confidence: capacity.map_or(0.0, |c| c.confidence),
                capacity: state.capacity.unwrap_or(1.0),
                share_target: at(&target),
                share: at(&shares),
                held: is_held,
            };
            let type_weight = type_weights.get(i).copied().unwrap_or(Weight::MIN);
            out.push(snapshot_of(
                state,
                observed,
                Published { weight, type_weight, gate },
                explanation,
                context,
            ));
        }

        let arrival_rate =
            self.arrivals.observe(context.now, context.arrivals.map(|a| a.arrivals_total));
        // What is down answers nothing, and its silence must not hide the others' service time.
        let up = out.iter().filter(|e| e.hard != HardState::Down);
        let in_flight: Option<u64> = up.map(|e| e.in_flight.map(u64::from)).sum();
        let mean_service = self.service_time.observe(in_flight, self.arrivals.mean(), context.dt);
        let mut alarms = Vec::new();
        match hold {
            Some(HoldReason::LowCapacity) => {
                alarms.push(Alarm::LowCapacity { service: name.into() })
            }
            Some(HoldReason::Invariant) => alarms.push(Alarm::Invariant { service: name.into() }),
            Some(HoldReason::MassSilence) | None => {}
        }
        if is_mass_silence {
            alarms.push(Alarm::MassSilence { service: name.into() });
        }
        let service = ServiceSnapshot {
            name: name.into(),
            arrival_rate,
            mean_service,
            proxies_live: context.arrivals.map_or(0, |a| a.proxies_live),
            endpoints: out,
        };
        (service, alarms)
    }

    /// Weights are relative to the largest: with another set of endpoints the published ones are void.
    fn follow_membership(&mut self, endpoints: &BTreeMap<&str, &EndpointDefinition>) {
        if self.endpoints.keys().map(String::as_str).eq(endpoints.keys().copied()) {
            return;
        }
        self.endpoints.retain(|address, _| endpoints.contains_key(address.as_str()));
        self.endpoints.values_mut().for_each(EndpointState::forget_published);
    }

    /// The score of each endpoint now, and the smoothed one in use.
    fn score(
        &mut self,
        observed: &[Observed],
        is_mass_silence: bool,
        context: &Context<'_>,
    ) -> Vec<Score> {
        let now = self.scorer.step(context.now, observed, &context.settings.prior);
        self.endpoints
            .values_mut()
            .zip(observed)
            .zip(now)
            .map(|((state, observed), now)| {
                let used = state.next_score(now, observed, is_mass_silence, context.dt);
                Score { now: now.value, used }
            })
            .collect()
    }

    fn capacities(
        &mut self,
        endpoints: &BTreeMap<&str, &EndpointDefinition>,
        observed: &[Observed],
        context: &Context<'_>,
    ) -> Vec<Capacity> {
        let known: Vec<Option<f64>> = self.endpoints.values().map(|s| s.type_capacity).collect();
        let types = capacity::fill_unknown(&known);
        let mut learned = Vec::with_capacity(types.len());
        for ((state, observed), definition) in
            self.endpoints.values_mut().zip(observed).zip(endpoints.values())
        {
            state.learn(observed, context.dt);
            learned.push(definition.capacity.is_none().then_some(state.learned));
        }
        let combined = capacity::combine(&types, &learned);
        for (state, capacity) in self.endpoints.values_mut().zip(&combined) {
            // Another card, or a name heard for the first time, is news and no noise.
            let is_same_type = state.smoothed_type == Some(capacity.of_type);
            let next = match state.capacity {
                Some(old) if is_same_type => ewma(old, capacity.used, context.dt, CAPACITY_TAU),
                _ => capacity.used,
            };
            state.capacity = Some(next);
            state.smoothed_type = Some(capacity.of_type);
        }
        combined
    }

    /// The shares aimed at, and the shares after the limits on change.
    fn shares(
        &mut self,
        scores: &[Score],
        capacities: &[Capacity],
        types: &[f64],
        dt: Span,
    ) -> (Vec<f64>, Vec<f64>) {
        let wanted: Vec<f64> = self
            .endpoints
            .values()
            .zip(scores)
            .zip(capacities)
            .map(|((state, score), c)| state.capacity.unwrap_or(c.used) * (0.5 + score.used))
            .collect();
        let target = smooth::within_bounds(&smooth::shares(&wanted), &smooth::shares(types));
        let old: Vec<Option<f64>> = self.endpoints.values().map(|s| s.share).collect();
        let shares = smooth::move_shares(&old, &target, dt);
        for (state, share) in self.endpoints.values_mut().zip(&shares) {
            state.share = Some(*share);
        }
        (target, shares)
    }

    /// Checks what is about to be published.
    fn hold_reason(
        &self,
        observed: &[Observed],
        capacities: &[Capacity],
        shares: &[f64],
    ) -> Option<HoldReason> {
        let is_sound = shares.iter().all(|s| s.is_finite() && *s >= 0.0)
            && (shares.is_empty() || shares.iter().sum::<f64>() > 0.0)
            && self.endpoints.values().all(|s| s.gate.is_some_and(f64::is_finite));
        if !is_sound {
            return Some(HoldReason::Invariant);
        }
        let total: f64 = capacities.iter().map(|c| c.used).sum();
        let eligible: f64 = observed
            .iter()
            .zip(capacities)
            .filter(|(o, _)| o.verdict.hard == HardState::Up && o.gate.get() >= ELIGIBLE_GATE_PM)
            .map(|(_, c)| c.used)
            .sum();
        (eligible < ELIGIBLE_MIN * total).then_some(HoldReason::LowCapacity)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Score {
    now: f64,
    used: f64,
}

struct Published {
    weight: Weight,
    type_weight: Weight,
    gate: PerMille,
}

fn is_mass_silence(context: &Context<'_>, bindings: &[Binding]) -> bool {
    // A node counts once, by its longest silence.
    let mut nodes: BTreeMap<&str, Freshness> = BTreeMap::new();
    for binding in bindings {
        let Some((silent, interval)) = context.reports.silence(context.now, binding) else {
            continue;
        };
        let Some(node) = binding.node.as_deref() else { continue };
        let state = nodes.entry(node).or_insert(Freshness::Fresh);
        *state = (*state).max(freshness(silent, interval));
    }
    let silent = nodes.values().filter(|f| **f == Freshness::Expired).count();
    silent as f64 > MASS_SILENCE * nodes.len() as f64
}

fn shown_factors(observed: &Observed) -> Vec<GateFactor> {
    let mut factors = observed.verdict.factors.clone();
    if observed.verdict.is_held {
        factors.push(GateFactor::measured(GateReason::HeldForData, 1.0, None));
    }
    factors
}

fn snapshot_of(
    state: &EndpointState,
    observed: Observed,
    published: Published,
    explanation: Explanation,
    context: &Context<'_>,
) -> EndpointSnapshot {
    EndpointSnapshot {
        address: observed.address,
        node: observed.node,
        gpu_type: state.gpu_type.clone(),
        weight: published.weight,
        type_weight: published.type_weight,
        gate: published.gate,
        hard: observed.verdict.hard,
        in_flight: observed.in_flight,
        slots: observed.slots,
        success: state.success.rate(),
        age: observed.age,
        memory_free: observed
            .memory_free
            .map(|part| BasisPoints::clamped(libm::floor(part * 10_000.0) as u32)),
        healthy_for: state.healthy_since.map(|since| context.now.since(since)),
        explanation,
    }
}

impl Scorer {
    fn factors(
        &self,
        row: usize,
        indicators: &crate::indicators::Indicators,
    ) -> Vec<IndicatorFactor> {
        let Some(completed) = self.rows().get(row) else { return Vec::new() };
        Indicator::ALL
            .into_iter()
            .zip(indicators.measured)
            .zip(completed)
            .zip(self.used())
            .filter(|(_, weight)| **weight > 0.0)
            .map(|(((indicator, measured), z), weight)| IndicatorFactor {
                indicator,
                measured,
                z: *z,
                weight: *weight,
            })
            .collect()
    }
}
