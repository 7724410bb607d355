//! Shared by the tests: a healthy fleet to break in one place at a time.
use alloc::{format, string::String, vec, vec::Vec};

use tidegate_policy::units::{Span, Time};

use crate::{
    fleet::Weigher,
    input::*,
    settings::Settings,
    snapshot::{EndpointSnapshot, FleetSnapshot},
};

pub(crate) const GIB: u64 = 1 << 30;

/// A GPU at its best: idle, cool, empty.
pub(crate) fn best_gpu(uuid: &str, index: u32) -> GpuSample {
    fn aged<T>(values: T) -> Option<Aged<T>> {
        Some(Aged { age: Span::ZERO, values })
    }
    GpuSample {
        uuid: uuid.into(),
        index,
        name: "NVIDIA A100-SXM4-80GB".into(),
        state: GpuState::Ok,
        utilization: aged(Utilization { sm_percent: Some(0), memory_percent: Some(0) }),
        memory: aged(Memory { total_bytes: Some(80 * GIB), free_bytes: Some(80 * GIB) }),
        thermal: aged(Thermal { temperature_c: Some(30), slowdown_c: Some(90) }),
        power: aged(Power { draw_mw: Some(0), limit_mw: Some(400_000) }),
        clocks: aged(Clocks {
            sm_mhz: Some(1_410),
            sm_max_mhz: Some(1_410),
            event_reasons: Some(0),
        }),
        ecc: aged(Ecc {
            volatile_uncorrected: Some(0),
            is_remap_pending: Some(false),
            is_remap_failed: Some(false),
        }),
        pcie: aged(Pcie {
            tx_bytes_per_second: Some(0),
            rx_bytes_per_second: Some(0),
            link_generation: Some(4),
            link_width: Some(16),
            link_width_max: Some(16),
        }),
        xids: Vec::new(),
        recovery_action: Some(0),
    }
}

/// Four endpoints `e0`..`e3` of service `llm`, one GPU each, a node for each two of them.
pub(crate) struct Rig {
    pub(crate) weigher: Weigher,
    pub(crate) now: Time,
    pub(crate) inputs: Inputs,
    events: u64,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::sized(4)
    }

    pub(crate) fn sized(endpoints: u32) -> Self {
        let mut inputs = Inputs::default();
        for i in 0..endpoints {
            let node = format!("n{}", i / 2);
            inputs.endpoints.push(EndpointDefinition {
                service: "llm".into(),
                address: format!("e{i}"),
                node: Some(node.clone()),
                gpus: vec![GpuRef::Index(i % 2)],
                ..EndpointDefinition::default()
            });
            if i % 2 == 0 {
                inputs.nodes.push(NodeReport {
                    node,
                    boot_id: "boot".into(),
                    interval: Span::ms(500),
                    driver: DriverStatus::Ok,
                    ..NodeReport::default()
                });
            }
            inputs.nodes.last_mut().unwrap().gpus.push(best_gpu(&format!("g{i}"), i % 2));
        }
        Self {
            weigher: Weigher::new(Settings::default()),
            now: Time::ms(1_000_000),
            inputs,
            events: 0,
        }
    }

    pub(crate) fn gpu(&mut self, i: usize) -> &mut GpuSample {
        &mut self.inputs.nodes[i / 2].gpus[i % 2]
    }

    pub(crate) fn clocks(&mut self, i: usize) -> &mut Clocks {
        &mut self.gpu(i).clocks.as_mut().unwrap().values
    }

    pub(crate) fn xid(&mut self, i: usize, code: u32) {
        self.events += 1;
        let event_id = self.events;
        self.gpu(i).xids.push(XidEvent { code, age: Span::ZERO, event_id });
    }

    pub(crate) fn engine(&mut self, i: usize, engine: Engine) {
        let node = &mut self.inputs.nodes[i / 2];
        let endpoint: String = format!("e{i}");
        node.workloads.retain(|w| w.endpoint != endpoint);
        node.workloads.push(Workload {
            endpoint,
            engine: Some(Aged { age: Span::ZERO, values: engine }),
            ..Workload::default()
        });
    }

    /// All nodes report now.
    pub(crate) fn report(&mut self) -> FleetSnapshot {
        for node in &mut self.inputs.nodes {
            node.received = self.now;
        }
        self.weigher.step(self.now, &self.inputs)
    }

    /// Time passes, then all nodes report.
    pub(crate) fn after(&mut self, ms: u64) -> FleetSnapshot {
        self.now = self.now.plus(Span::ms(ms));
        self.report()
    }

    /// A report each half second for so long.
    pub(crate) fn run(&mut self, ms: u64) -> FleetSnapshot {
        let mut last = self.report();
        for _ in 0..ms / 500 {
            last = self.after(500);
        }
        last
    }

    /// Time passes in half seconds with reports from all nodes but one.
    pub(crate) fn run_without(&mut self, silent: &[usize], ms: u64) -> FleetSnapshot {
        let mut last = FleetSnapshot::default();
        for _ in 0..ms / 500 {
            self.now = self.now.plus(Span::ms(500));
            for (i, node) in self.inputs.nodes.iter_mut().enumerate() {
                if !silent.contains(&i) {
                    node.received = self.now;
                }
            }
            last = self.weigher.step(self.now, &self.inputs);
        }
        last
    }
}

pub(crate) fn at<'a>(fleet: &'a FleetSnapshot, address: &str) -> &'a EndpointSnapshot {
    fleet.endpoint("llm", address).unwrap()
}

pub(crate) fn gates(fleet: &FleetSnapshot) -> Vec<u16> {
    fleet.services[0].endpoints.iter().map(|e| e.gate.get()).collect()
}

pub(crate) fn weights(fleet: &FleetSnapshot) -> Vec<u16> {
    fleet.services[0].endpoints.iter().map(|e| e.weight.get()).collect()
}
