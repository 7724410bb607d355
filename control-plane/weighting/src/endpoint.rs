//! What is observed at one endpoint in a step, and what is remembered of it.
use alloc::{string::String, vec::Vec};

use tidegate_policy::units::{PerMille, Span, Time, Weight};

use crate::{
    bind::{Binding, GpuKey},
    capacity::{self, Learned},
    explain::HoldReason,
    freshness::{Freshness, Tier, age, freshness, read, silence_gate},
    health::{self, EndpointView, GpuView, ReportedGpu, Verdict},
    indicators::{self, Indicators},
    input::{EndpointDefinition, Engine},
    numbers::{ewma, ratio},
    score::ScoreNow,
    service::Context,
    smooth::{self, Rise},
    snapshot::HardState,
    success::{self, Slots, Success},
};

const SCORE_TAU: Span = Span::secs(15);

/// One endpoint in one step.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) address: String,
    pub(crate) node: Option<String>,
    pub(crate) gpu_type: Option<String>,
    /// Of the reports behind it; absent when there is no report.
    pub(crate) freshness: Option<Freshness>,
    pub(crate) engine: Option<Engine>,
    pub(crate) in_flight: Option<u32>,
    pub(crate) slots: Option<u32>,
    pub(crate) succeeded: u64,
    pub(crate) indicators: Indicators,
    pub(crate) verdict: Verdict,
    /// After the limit on rising.
    pub(crate) gate: PerMille,
    pub(crate) age: Option<Span>,
    pub(crate) memory_free: Option<f64>,
}

/// What is remembered of one endpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointState {
    pub(crate) known_gpus: Vec<GpuKey>,
    pub(crate) gpu_type: Option<String>,
    pub(crate) type_capacity: Option<f64>,
    pub(crate) smoothed_type: Option<f64>,
    pub(crate) capacity: Option<f64>,
    pub(crate) learned: Learned,
    pub(crate) gate: Option<f64>,
    pub(crate) share: Option<f64>,
    pub(crate) success: Success,
    pub(crate) healthy_since: Option<Time>,
    score: Option<f64>,
    slots: Slots,
    queue_long_since: Option<Time>,
    published: Option<Weight>,
    good_gate: Option<PerMille>,
    is_seen: bool,
    was_down: bool,
}

impl EndpointState {
    pub(crate) fn observe(
        &mut self,
        definition: &EndpointDefinition,
        binding: &Binding,
        is_mass_silence: bool,
        context: &Context<'_>,
    ) -> Observed {
        let now = context.now;
        if !binding.gpus.is_empty() {
            self.known_gpus.clone_from(&binding.gpus);
        }
        let reported: Vec<ReportedGpu<'_>> =
            binding.gpus.iter().filter_map(|key| context.reports.gpu(key)).collect();
        self.learn_type(definition, binding, &reported, context);

        let silence = context.reports.silence(now, binding);
        let freshness = silence.map(|(silent, interval)| freshness(silent, interval));
        let engine = binding.engine.map(|(engine, _)| engine);
        let feedback = context
            .feedback
            .get(&(definition.service.as_str(), definition.address.as_str()))
            .copied();
        let slots = self.slots.observe(engine, context.dt);
        let is_long = health::long_queue(engine, slots).is_some();
        let since = is_long.then(|| self.queue_long_since.unwrap_or(now));
        self.queue_long_since = since;
        let verdict = health::judge(
            now,
            &self.views(binding, context),
            EndpointView {
                engine,
                slots,
                queue_long_for: since.map_or(Span::ZERO, |since| now.since(since)),
                is_draining: definition.is_draining,
                silence: match silence {
                    Some((silent, interval)) if !is_mass_silence => silence_gate(silent, interval),
                    _ => 1.0,
                },
                is_node_late: freshness.is_some_and(|f| f != Freshness::Fresh),
            },
        );
        let rise = if verdict.is_held { Rise::Held } else { Rise::Allowed };
        let gate = smooth::next_gate(self.gate, verdict.gate, context.dt, rise);
        self.gate = Some(gate);
        self.update_healthy(verdict.hard, context);

        Observed {
            address: definition.address.clone(),
            node: binding.node.clone(),
            gpu_type: self.gpu_type.clone(),
            freshness,
            engine,
            in_flight: success::in_flight(engine, feedback),
            slots,
            succeeded: self.success.observe(feedback, context.dt),
            indicators: indicators::of_endpoint(
                now,
                reported.iter().copied(),
                engine,
                slots,
                context.settings,
            ),
            verdict,
            gate: smooth::per_mille(gate),
            age: data_age(now, &reported, binding),
            memory_free: memory_free(now, &reported),
        }
    }

    /// The smoothed score: held through short silence, drawn to neutral by long silence, never up by it.
    pub(crate) fn next_score(
        &mut self,
        now: ScoreNow,
        observed: &Observed,
        is_mass_silence: bool,
        dt: Span,
    ) -> f64 {
        let target = match (self.score, observed.freshness) {
            (Some(old), Some(Freshness::Stale)) => old,
            (Some(old), Some(Freshness::Expired)) if is_mass_silence => old,
            (Some(old), Some(Freshness::Expired)) => old.min(now.neutral),
            (Some(old), _) if !now.has_data => old.min(now.value),
            (_, _) => now.value,
        };
        match self.score {
            Some(old) => {
                let next = ewma(old, target, dt, SCORE_TAU);
                self.score = Some(next);
                next
            }
            None => {
                // Without data there is nothing worth remembering: the first real score counts at once.
                self.score = now.has_data.then_some(target);
                target
            }
        }
    }

    /// Learns the capacity from what a saturated, healthy endpoint completes.
    pub(crate) fn learn(&mut self, observed: &Observed, dt: Span) {
        let gate = self.gate.unwrap_or(0.0).min(observed.verdict.gate);
        if dt == Span::ZERO || !capacity::is_teaching(observed.in_flight, observed.slots, gate) {
            return;
        }
        if let Some(tokens) = observed.engine.and_then(|e| e.tokens_per_second) {
            self.learned.tokens.observe(tokens, dt);
        }
        self.learned.requests.observe(observed.succeeded as f64 / dt.as_secs_f64(), dt);
    }

    /// What goes out: the new values, or the last good ones while something is amiss. A hard verdict
    /// always goes out.
    pub(crate) fn publish(
        &mut self,
        weight: Weight,
        observed: &Observed,
        hold: Option<HoldReason>,
    ) -> (Weight, PerMille) {
        if observed.verdict.hard != HardState::Up {
            self.good_gate = Some(PerMille::ZERO);
        }
        if hold.is_some() {
            let weight = *self.published.get_or_insert(weight);
            let gate = self.good_gate.map_or(observed.gate, |good| good.max(observed.gate));
            return (weight, gate);
        }
        let weight = smooth::with_dead_band(self.published, weight);
        self.published = Some(weight);
        self.good_gate = Some(observed.gate);
        (weight, observed.gate)
    }

    pub(crate) fn forget_published(&mut self) {
        self.published = None;
    }

    fn learn_type(
        &mut self,
        definition: &EndpointDefinition,
        binding: &Binding,
        reported: &[ReportedGpu<'_>],
        context: &Context<'_>,
    ) {
        if let Some(first) = reported.first() {
            self.gpu_type = Some(first.gpu.name.clone()).filter(|n| !n.is_empty());
        }
        if let Some(stated) = definition.capacity {
            self.type_capacity = Some(capacity::clamp(stated));
            return;
        }
        // A sum over some of the GPUs would be worse than what was known.
        if reported.is_empty() || reported.len() < binding.gpus.len() + binding.missing.len() {
            return;
        }
        let overrides = &context.settings.capacities;
        let sum: Option<f64> =
            reported.iter().map(|r| capacity::of_type(&r.gpu.name, overrides)).sum();
        self.type_capacity = sum.map(capacity::clamp);
    }

    fn views<'a>(&self, binding: &Binding, context: &'a Context<'_>) -> Vec<GpuView<'a>> {
        let driver = |node: &str| context.reports.driver(node);
        // What was bound before stays bound while no report speaks of it: a verdict must not be lost
        // because the reporter restarts.
        let keys = if binding.gpus.is_empty() { &self.known_gpus } else { &binding.gpus };
        let known = keys.iter().map(|key| GpuView {
            uuid: key.1.clone(),
            reported: context.reports.gpu(key),
            memory: context.gpus.get(key),
            driver: driver(&key.0),
        });
        let unknown = binding
            .missing
            .iter()
            .filter(|_| keys.len() < binding.missing.len() + binding.gpus.len());
        let node = binding.node.as_deref().unwrap_or_default();
        known
            .chain(unknown.map(|name| GpuView {
                uuid: name.clone(),
                reported: None,
                memory: None,
                driver: driver(node),
            }))
            .collect()
    }

    fn update_healthy(&mut self, hard: HardState, context: &Context<'_>) {
        let is_down = hard == HardState::Down;
        let is_new = !self.is_seen && !context.is_starting;
        if !is_down && (is_new || self.was_down) {
            self.healthy_since = Some(context.now);
        }
        if is_down {
            self.healthy_since = None;
        }
        self.is_seen = true;
        self.was_down = is_down;
    }
}

/// Age of what proxies reckon with: of the model server's count of requests where there is one, since
/// they add what they themselves sent since that moment; else of the newest of the fast groups, of
/// several GPUs the oldest.
fn data_age(now: Time, reported: &[ReportedGpu<'_>], binding: &Binding) -> Option<Span> {
    if let Some((engine, age)) = binding.engine
        && engine.running.is_some()
    {
        return Some(age);
    }
    let newest = |r: &ReportedGpu<'_>| {
        let groups = [
            r.gpu.utilization.map(|g| g.age),
            r.gpu.memory.map(|g| g.age),
            r.gpu.clocks.map(|g| g.age),
            r.gpu.power.map(|g| g.age),
        ];
        groups.into_iter().flatten().min().map(|sent| age(now, r.report.received, sent))
    };
    let of_gpus = reported.iter().filter_map(newest).max();
    of_gpus.into_iter().chain(binding.engine.map(|(_, age)| age)).min()
}

fn memory_free(now: Time, reported: &[ReportedGpu<'_>]) -> Option<f64> {
    reported
        .iter()
        .filter_map(|r| {
            let group = read(now, r.report.received, r.report.interval, r.gpu.memory, Tier::Fast)?;
            let (free, total) = (group.free_bytes?, group.total_bytes?);
            ratio(free, total)
        })
        .min_by(f64::total_cmp)
}
