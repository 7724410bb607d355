//! The control plane: what it is told each period, and the update that it sends.
//!
//! `weigher` runs the step that ships, fed with reports as a reporter makes them and with the counts of the
//! proxies. `board` is the plainest thing that could be pushed: the true capacities, the true counts and the
//! true rate of arrivals. Where both agree, the policy is measured; where they differ, the weigher is.
//!
//! Reports are sampled when the step runs, so a snapshot is never older than a period and the delay.
//! The counts of the proxies are exact sums: real ones come with each proxy's own period and phase.

use tidegate_policy::{
    snapshot::{EndpointUpdate, Extent, Hard, ServiceUpdate, Update},
    units::{BasisPoints, PerMille, Span, Time, Weight},
};
use tidegate_weighting::{
    EndpointSnapshot, HardState, Inputs, Settings, Weigher,
    input::{
        Aged, DriverStatus, EndpointDefinition, EndpointFeedback, Engine, EngineKind, GpuRef,
        GpuSample, GpuState, Memory, NodeReport, Power, ServiceFeedback, Thermal, Utilization,
        Workload,
    },
};

use crate::server::Spec;

/// Name of the one service.
pub const SERVICE: &str = "llm";
const GIB: u64 = 1 << 30;

/// Which control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlaneKind {
    /// The weigher that ships.
    Weigher,
    /// True capacities and counts.
    Board,
}

impl PlaneKind {
    pub const ALL: [Self; 2] = [Self::Weigher, Self::Board];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Weigher => "weigher",
            Self::Board => "board",
        }
    }
}

/// What does not change in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    pub period: Span,
    pub proxies: u32,
    pub specs: Vec<Spec>,
    pub work_mean_s: f64,
    pub rate_per_s: f64,
}

/// One endpoint as reporters and proxies see it at a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// When the values below were sampled.
    pub sampled: Time,
    pub running: u32,
    pub waiting: u32,
    pub is_down: bool,
    /// Counts up with each return from being down.
    pub boots: u32,
    /// What the proxies have there, and what they have counted.
    pub in_flight: u32,
    pub ok_total: u64,
    pub broken_total: u64,
}

/// The address of endpoint `index`.
#[must_use]
pub fn address(index: usize) -> String {
    format!("10.0.{}.{}:8000", index / 250, index % 250 + 1)
}

/// A control plane in a run.
#[derive(Debug)]
pub struct Plane {
    facts: Facts,
    epoch: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Weigher(Box<Weigher>),
    Board(Vec<BoardSuccess>),
}

impl Plane {
    #[must_use]
    pub fn new(kind: PlaneKind, facts: Facts) -> Self {
        let kind = match kind {
            PlaneKind::Weigher => Kind::Weigher(Box::new(Weigher::new(Settings::default()))),
            PlaneKind::Board => Kind::Board(vec![BoardSuccess::default(); facts.specs.len()]),
        };
        Self { facts, epoch: 0, kind }
    }

    /// The full state as of `now`.
    pub fn step(&mut self, now: Time, seen: &[Seen], arrivals_total: u64) -> Update {
        self.epoch += 1;
        let service = match &mut self.kind {
            Kind::Weigher(weigher) => weigh(weigher, &self.facts, now, seen, arrivals_total),
            Kind::Board(success) => board(&self.facts, now, seen, success),
        };
        Update {
            epoch: self.epoch,
            instance: 1,
            period: self.facts.period,
            proxies_live: self.facts.proxies,
            extent: Extent::Full,
            services: vec![service],
            services_removed: Vec::new(),
        }
    }
}

fn board(facts: &Facts, now: Time, seen: &[Seen], success: &mut [BoardSuccess]) -> ServiceUpdate {
    let most = facts.specs.iter().map(Spec::capacity).fold(0.0, f64::max);
    let slots: f64 = facts.specs.iter().map(|s| f64::from(s.slots)).sum();
    let capacity: f64 = facts.specs.iter().map(Spec::capacity).sum();
    for (success, seen) in success.iter_mut().zip(seen) {
        success.observe(seen, facts.period.as_secs_f64());
    }
    let endpoint = |(index, (spec, seen)): (usize, (&Spec, &Seen))| {
        let weight = Weight::clamped((spec.capacity() / most * 10_000.0) as u32);
        EndpointUpdate {
            address: address(index),
            weight,
            in_flight: Some(seen.running + seen.waiting),
            slots: Some(spec.slots),
            gate: PerMille::FULL,
            success: Some(success[index].rate()),
            age: Some(now.since(seen.sampled)),
            hard: if seen.is_down { Hard::Down } else { Hard::Up },
            node: node(index),
            gpu_type: String::new(),
            type_weight: weight,
            memory_free: None,
            healthy_for: None,
        }
    };
    ServiceUpdate {
        name: SERVICE.into(),
        arrival_rate: Some(facts.rate_per_s),
        endpoints: facts.specs.iter().zip(seen).enumerate().map(endpoint).collect(),
        endpoints_removed: Vec::new(),
        // Full slots, as at the load that matters.
        mean_service: Some(Span::ms((facts.work_mean_s * slots / capacity * 1_000.0) as u64)),
    }
}

/// Success of one endpoint over all proxies, by the rule of the policy: a tenth of the way with each outcome,
/// and up again with time when nothing is tried, until a failure takes that back.
#[derive(Clone, Copy, Debug)]
struct BoardSuccess {
    rate: f64,
    healed: f64,
    ok: u64,
    broken: u64,
}

impl Default for BoardSuccess {
    fn default() -> Self {
        Self { rate: 1.0, healed: 0.0, ok: 0, broken: 0 }
    }
}

impl BoardSuccess {
    fn observe(&mut self, seen: &Seen, passed_s: f64) {
        let (ok, broken) = (seen.ok_total - self.ok, seen.broken_total - self.broken);
        (self.ok, self.broken) = (seen.ok_total, seen.broken_total);
        if ok + broken == 0 {
            self.healed = (self.healed + 0.02 * passed_s).min(1.0 - self.rate);
            return;
        }
        let (counted, mean) = ((ok + broken) as f64, ok as f64 / (ok + broken) as f64);
        let before = if broken == 0 { self.rate + self.healed } else { self.rate };
        self.healed = 0.0;
        self.rate = (mean + (before - mean) * libm::pow(0.9, counted)).clamp(0.1, 1.0);
    }

    fn rate(self) -> BasisPoints {
        BasisPoints::clamped(((self.rate + self.healed) * 10_000.0) as u32)
    }
}

fn node(index: usize) -> String {
    format!("node-{index}")
}

fn weigh(
    weigher: &mut Weigher,
    facts: &Facts,
    now: Time,
    seen: &[Seen],
    arrivals_total: u64,
) -> ServiceUpdate {
    let most = facts.specs.iter().map(Spec::capacity).fold(0.0, f64::max);
    let mut inputs = Inputs::default();
    for (index, (spec, seen)) in facts.specs.iter().zip(seen).enumerate() {
        inputs.endpoints.push(EndpointDefinition {
            service: SERVICE.into(),
            address: address(index),
            node: Some(node(index)),
            gpus: vec![GpuRef::Index(0)],
            capacity: Some(spec.capacity() / most),
            is_draining: false,
        });
        inputs.nodes.push(report(facts, index, spec, seen));
        inputs.feedback.push(EndpointFeedback {
            service: SERVICE.into(),
            address: address(index),
            in_flight: Some(seen.in_flight),
            ok_total: seen.ok_total,
            busy_total: 0,
            broken_total: seen.broken_total,
            cancelled_total: 0,
        });
    }
    inputs.services.push(ServiceFeedback {
        service: SERVICE.into(),
        arrivals_total,
        proxies_live: facts.proxies,
    });
    let snapshot = weigher.step(now, &inputs);
    let service = snapshot.services.into_iter().next().unwrap_or_default();
    ServiceUpdate {
        name: SERVICE.into(),
        arrival_rate: service.arrival_rate,
        endpoints: service.endpoints.into_iter().map(published).collect(),
        endpoints_removed: Vec::new(),
        mean_service: service.mean_service,
    }
}

/// A model server that takes its memory at start, on a GPU that is busy when anything runs.
fn report(facts: &Facts, index: usize, spec: &Spec, seen: &Seen) -> NodeReport {
    fn fresh<T>(values: T) -> Option<Aged<T>> {
        Some(Aged { age: Span::ZERO, values })
    }
    let used = f64::from(seen.running) / f64::from(spec.slots);
    let gpu = GpuSample {
        uuid: format!("GPU-{index}"),
        name: format!("simulated-{}", (spec.speed * 1_000.0) as u32),
        state: if seen.is_down { GpuState::Lost } else { GpuState::Ok },
        utilization: fresh(Utilization {
            sm_percent: Some(if seen.running > 0 { 100 } else { 0 }),
            memory_percent: Some((90.0 * used) as u32),
        }),
        memory: fresh(Memory { total_bytes: Some(80 * GIB), free_bytes: Some(8 * GIB) }),
        thermal: fresh(Thermal {
            temperature_c: Some(35 + (35.0 * used) as u32),
            slowdown_c: Some(90),
        }),
        power: fresh(Power {
            draw_mw: Some(80_000 + (240_000.0 * used) as u32),
            limit_mw: Some(400_000),
        }),
        ..GpuSample::default()
    };
    let engine = Engine {
        kind: EngineKind::Vllm,
        running: Some(seen.running),
        waiting: Some(seen.waiting),
        kv_use_bp: Some((8_000.0 * used) as u32),
        slots: Some(spec.slots),
        ttft_p95_ms: None,
        tokens_per_second: None,
    };
    NodeReport {
        node: node(index),
        boot_id: format!("boot-{}", seen.boots),
        received: seen.sampled,
        interval: facts.period,
        driver: DriverStatus::Ok,
        workloads: vec![Workload {
            endpoint: address(index),
            service: SERVICE.into(),
            gpu_uuids: vec![gpu.uuid.clone()],
            engine: fresh(engine),
        }],
        gpus: vec![gpu],
    }
}

/// What the wire carries of an endpoint.
fn published(endpoint: EndpointSnapshot) -> EndpointUpdate {
    EndpointUpdate {
        address: endpoint.address,
        weight: endpoint.weight,
        in_flight: endpoint.in_flight,
        slots: endpoint.slots,
        gate: endpoint.gate,
        success: endpoint.success,
        age: endpoint.age,
        hard: match endpoint.hard {
            HardState::Up => Hard::Up,
            HardState::Draining => Hard::Draining,
            HardState::Down => Hard::Down,
        },
        node: endpoint.node.unwrap_or_default(),
        gpu_type: endpoint.gpu_type.unwrap_or_default(),
        type_weight: endpoint.type_weight,
        memory_free: endpoint.memory_free,
        healthy_for: endpoint.healthy_for,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        let spec = |speed| Spec { speed, slots: 8, slowdown: 0.0 };
        Facts {
            period: Span::ms(500),
            proxies: 4,
            specs: vec![spec(1.0), spec(0.5), spec(1.0)],
            work_mean_s: 3.0,
            rate_per_s: 2.0,
        }
    }

    /// The endpoint of a three-endpoint service after some steps of the same kind.
    fn after(kind: PlaneKind, change: fn(&mut Seen)) -> ServiceUpdate {
        let mut plane = Plane::new(kind, facts());
        let mut update = None;
        for step in 1..=20_u64 {
            let now = Time::ms(1_000_000 + 500 * step);
            let mut seen = [Seen { sampled: now, running: 8, waiting: 1, ..Seen::default() }; 3];
            change(&mut seen[1]);
            update = plane.step(now, &seen, step).services.pop();
        }
        update.unwrap()
    }

    #[test]
    fn both_planes_tell_counts_slots_and_capacity() {
        for kind in PlaneKind::ALL {
            let service = after(kind, |_| ());
            let endpoint = &service.endpoints[1];
            assert_eq!((endpoint.in_flight, endpoint.slots), (Some(9), Some(8)), "{kind:?}");
            // Half the speed of the largest, which is 10000; the weigher's may differ by its score.
            assert!((4_750..=5_250).contains(&endpoint.weight.get()), "{kind:?} {endpoint:?}");
            assert!(service.arrival_rate.unwrap() > 0.0 && service.mean_service.is_some());
        }
    }

    #[test]
    fn both_planes_tell_what_is_down() {
        for kind in PlaneKind::ALL {
            let service = after(kind, |seen| seen.is_down = true);
            let hard: Vec<Hard> = service.endpoints.iter().map(|e| e.hard).collect();
            assert_eq!(hard, [Hard::Up, Hard::Down, Hard::Up], "{kind:?}");
        }
    }
}
