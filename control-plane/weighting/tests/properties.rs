//! What holds for every input, however broken.
use proptest::prelude::*;
use tidegate_policy::units::{Span, Time};
use tidegate_weighting::{FleetSnapshot, HardState, Settings, Weigher, input::*};

fn age() -> impl Strategy<Value = Span> {
    prop_oneof![4 => 0_u64..2_000, 1 => 0_u64..100_000, 1 => Just(u64::MAX)].prop_map(Span::ms)
}

fn number() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![
        2 => Just(None),
        4 => (0_u32..120).prop_map(Some),
        1 => any::<u32>().prop_map(Some),
        1 => Just(Some(u32::MAX)),
    ]
}

fn big() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        2 => Just(None),
        4 => (0_u64..100).prop_map(|g| Some(g << 30)),
        1 => any::<u64>().prop_map(Some),
        1 => Just(Some(u64::MAX)),
    ]
}

fn aged<T: std::fmt::Debug>(
    values: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<Aged<T>>> {
    proptest::option::weighted(0.8, (age(), values).prop_map(|(age, values)| Aged { age, values }))
}

fn gpu(index: u32) -> impl Strategy<Value = GpuSample> {
    let states = prop_oneof![
        8 => Just(GpuState::Ok),
        1 => Just(GpuState::Unknown),
        1 => Just(GpuState::Lost),
        1 => Just(GpuState::Hung),
        1 => Just(GpuState::Slow),
        1 => Just(GpuState::Missing),
    ];
    let names = prop::sample::select(vec!["NVIDIA A100-SXM4-80GB", "Tesla T4", "", "unknown card"]);
    let first = (
        states,
        names,
        aged(
            (number(), number())
                .prop_map(|(sm, memory)| Utilization { sm_percent: sm, memory_percent: memory }),
        ),
        aged(
            (big(), big())
                .prop_map(|(total, free)| Memory { total_bytes: total, free_bytes: free }),
        ),
        aged(
            (number(), number())
                .prop_map(|(now, slowdown)| Thermal { temperature_c: now, slowdown_c: slowdown }),
        ),
        aged(
            (number(), number()).prop_map(|(draw, limit)| Power { draw_mw: draw, limit_mw: limit }),
        ),
    );
    let second = (
        aged((number(), number(), proptest::option::of(0_u64..0x200)).prop_map(
            |(now, max, bits)| Clocks { sm_mhz: now, sm_max_mhz: max, event_reasons: bits },
        )),
        aged(
            (proptest::option::of(0_u64..3), any::<Option<bool>>(), any::<Option<bool>>())
                .prop_map(|(count, pending, failed)| Ecc {
                    volatile_uncorrected: count,
                    is_remap_pending: pending,
                    is_remap_failed: failed,
                }),
        ),
        aged((big(), number(), number(), number()).prop_map(|(bytes, generation, width, max)| {
            Pcie {
                tx_bytes_per_second: bytes,
                rx_bytes_per_second: None,
                link_generation: generation,
                link_width: width,
                link_width_max: max,
            }
        })),
        prop::collection::vec(
            (0_u32..160, age(), 0_u64..4).prop_map(|(code, age, event_id)| XidEvent {
                code,
                age,
                event_id,
            }),
            0..3,
        ),
        prop_oneof![6 => Just(Some(0)), 2 => Just(None), 1 => (1_u32..9).prop_map(Some)],
    );
    (first, second).prop_map(move |(first, second)| {
        let (state, name, utilization, memory, thermal, power) = first;
        let (clocks, ecc, pcie, xids, recovery_action) = second;
        GpuSample {
            uuid: format!("g{index}"),
            index,
            name: name.into(),
            state,
            utilization,
            memory,
            thermal,
            power,
            clocks,
            ecc,
            pcie,
            xids,
            recovery_action,
        }
    })
}

fn engine() -> impl Strategy<Value = Option<Aged<Engine>>> {
    let rates = prop_oneof![
        Just(None),
        Just(Some(f64::NAN)),
        Just(Some(f64::INFINITY)),
        Just(Some(-1.0)),
        (0.0..1e6).prop_map(Some),
    ];
    aged((number(), number(), number(), number(), number(), rates).prop_map(
        |(running, waiting, kv_use_bp, slots, ttft_p95_ms, tokens_per_second)| Engine {
            kind: EngineKind::Vllm,
            running,
            waiting,
            kv_use_bp,
            slots,
            ttft_p95_ms,
            tokens_per_second,
        },
    ))
}

fn driver() -> impl Strategy<Value = DriverStatus> {
    prop_oneof![
        8 => Just(DriverStatus::Ok),
        1 => Just(DriverStatus::Hung),
        1 => Just(DriverStatus::Absent),
        1 => Just(DriverStatus::Unknown),
    ]
}

/// Up to 5 endpoints on nodes of their own, with whatever a reporter might say.
fn inputs() -> impl Strategy<Value = Inputs> {
    let capacity = prop_oneof![
        6 => Just(None),
        1 => (0.1..4.0).prop_map(Some),
        1 => Just(Some(f64::NAN)),
        1 => Just(Some(f64::INFINITY)),
    ];
    let one = (gpu(0), engine(), driver(), capacity, any::<(u64, u64)>(), number(), age(), 0..9_u8);
    prop::collection::vec(one, 1..6).prop_map(|all| {
        let mut inputs = Inputs::default();
        for (i, (gpu, engine, driver, capacity, counts, in_flight, interval, drain)) in
            all.into_iter().enumerate()
        {
            let (node, address) = (format!("n{i}"), format!("e{i}"));
            inputs.endpoints.push(EndpointDefinition {
                service: "llm".into(),
                address: address.clone(),
                node: Some(node.clone()),
                gpus: vec![GpuRef::Index(0)],
                capacity,
                is_draining: drain == 0,
            });
            inputs.nodes.push(NodeReport {
                node,
                boot_id: "b".into(),
                received: Time::ms(1_000_000),
                interval,
                driver,
                gpus: vec![gpu],
                workloads: vec![Workload {
                    endpoint: address.clone(),
                    engine,
                    ..Workload::default()
                }],
            });
            inputs.feedback.push(EndpointFeedback {
                service: "llm".into(),
                address,
                in_flight,
                ok_total: counts.0,
                broken_total: counts.1,
                ..EndpointFeedback::default()
            });
        }
        inputs.services.push(ServiceFeedback {
            service: "llm".into(),
            arrivals_total: inputs.feedback[0].ok_total,
            proxies_live: 1,
        });
        inputs
    })
}

fn check_sound(fleet: &FleetSnapshot) {
    for service in &fleet.services {
        assert!(service.arrival_rate.is_none_or(|r| r.is_finite() && r >= 0.0));
        let largest = service.endpoints.iter().map(|e| e.weight.get()).max();
        assert!(largest.is_none_or(|w| w >= 9_000), "someone stands near the top: {largest:?}");
        for e in &service.endpoints {
            assert!((1..=10_000).contains(&e.weight.get()));
            assert!((1..=10_000).contains(&e.type_weight.get()));
            assert!(e.gate.get() <= 1_000);
            assert!(e.hard == HardState::Up || e.gate.get() == 0, "{e:?}");
            assert!(e.hard != HardState::Up || e.gate.get() > 0 || e.explanation.gate_raw >= 0.0);
            for (name, value) in e.explanation.rows() {
                assert!(value.is_finite(), "{name} is {value}");
            }
        }
    }
}

/// The same endpoint with everything known and at its best.
fn make_best(inputs: &mut Inputs, i: usize) {
    fn fresh<T>(values: T) -> Option<Aged<T>> {
        Some(Aged { age: Span::ZERO, values })
    }
    inputs.endpoints[i].is_draining = false;
    let node = &mut inputs.nodes[i];
    node.driver = DriverStatus::Ok;
    node.interval = Span::ms(500);
    let gpu = &mut node.gpus[0];
    gpu.state = GpuState::Ok;
    gpu.utilization = fresh(Utilization { sm_percent: Some(0), memory_percent: Some(0) });
    gpu.memory = fresh(Memory { total_bytes: Some(1 << 36), free_bytes: Some(1 << 36) });
    gpu.thermal = fresh(Thermal { temperature_c: Some(30), slowdown_c: Some(90) });
    gpu.power = fresh(Power { draw_mw: Some(0), limit_mw: Some(400_000) });
    gpu.clocks = fresh(Clocks { sm_mhz: Some(1), sm_max_mhz: Some(1), event_reasons: Some(0) });
    gpu.ecc = None;
    gpu.pcie = fresh(Pcie {
        tx_bytes_per_second: Some(0),
        rx_bytes_per_second: Some(0),
        link_generation: Some(4),
        link_width: Some(16),
        link_width_max: Some(16),
    });
    gpu.xids.clear();
    gpu.recovery_action = Some(0);
    node.workloads[0].engine = fresh(Engine {
        kind: EngineKind::Vllm,
        running: Some(0),
        waiting: Some(0),
        kv_use_bp: Some(0),
        slots: Some(8),
        ttft_p95_ms: Some(0),
        tokens_per_second: None,
    });
}

/// Takes groups away by the bits of `mask`.
fn take_away(inputs: &mut Inputs, i: usize, mask: u16) {
    let is_out = |bit: u16| mask & (1 << bit) != 0;
    let node = &mut inputs.nodes[i];
    let gpu = &mut node.gpus[0];
    if is_out(0) {
        gpu.utilization = None;
    }
    if is_out(1) {
        gpu.memory = None;
    }
    if is_out(2) {
        gpu.thermal = None;
    }
    if is_out(3) {
        gpu.power = None;
    }
    if is_out(4) {
        gpu.clocks = None;
    }
    if is_out(5) {
        gpu.pcie = None;
    }
    if is_out(6) {
        node.workloads.clear();
    }
    if is_out(7) {
        node.gpus.clear();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_input_gives_a_sound_fleet(
        steps in prop::collection::vec((inputs(), 0_u64..20_000), 1..6),
    ) {
        let mut weigher = Weigher::new(Settings::default());
        let mut now = Time::ms(1_000_000);
        for (inputs, ms) in steps {
            now = now.plus(Span::ms(ms));
            check_sound(&weigher.step(now, &inputs));
        }
    }

    #[test]
    fn order_of_the_input_changes_nothing(
        inputs in inputs(), other in inputs(), turn in 0_usize..6,
    ) {
        let turned = |inputs: &Inputs| {
            let mut turned = inputs.clone();
            let by = turn % turned.endpoints.len();
            turned.endpoints.rotate_left(by);
            turned.endpoints.reverse();
            turned.nodes.reverse();
            turned.feedback.rotate_left(by);
            turned
        };
        let (mut a, mut b) = (Weigher::default(), Weigher::default());
        for (i, inputs) in [inputs, other].into_iter().enumerate() {
            let now = Time::ms(1_000_500 + i as u64 * 700);
            prop_assert_eq!(a.step(now, &inputs), b.step(now, &turned(&inputs)));
        }
    }

    #[test]
    fn missing_data_is_never_better_than_good_data(
        inputs in inputs(), mask in 1_u16..256, at in 0_usize..6,
    ) {
        let at = at % inputs.endpoints.len();
        let mut best = inputs.clone();
        make_best(&mut best, at);
        let mut less = best.clone();
        take_away(&mut less, at, mask);
        let address = format!("e{at}");
        let step = |inputs: &Inputs| {
            let fleet = Weigher::default().step(Time::ms(1_000_100), inputs);
            let endpoint = fleet.endpoint("llm", &address).unwrap();
            (endpoint.gate, endpoint.explanation.score)
        };
        let (best, less) = (step(&best), step(&less));
        prop_assert!(less.0 <= best.0, "gate {:?} above {:?}", less.0, best.0);
        prop_assert!(less.1 <= best.1 + 1e-9, "score {} above {}", less.1, best.1);
    }

    #[test]
    fn no_gate_rises_faster_than_allowed(
        steps in prop::collection::vec((inputs(), 0_u64..3_000), 2..8),
    ) {
        let mut weigher = Weigher::default();
        let mut now = Time::ms(1_000_000);
        let mut before: Option<FleetSnapshot> = None;
        for (inputs, ms) in steps {
            now = now.plus(Span::ms(ms));
            let fleet = weigher.step(now, &inputs);
            for e in &fleet.services[0].endpoints {
                let old = before.as_ref().and_then(|b| b.endpoint("llm", &e.address));
                // While a hold is on, the last good gate stands in: it may be any gate of before.
                let Some(old) = old.filter(|o| o.explanation.held.is_none()) else { continue };
                if e.explanation.held.is_some() {
                    continue;
                }
                let allowed = f64::from(old.gate.get()) + 0.1 * ms as f64 + 1.0;
                prop_assert!(f64::from(e.gate.get()) <= allowed, "{} → {}", old.gate.get(), e.gate.get());
            }
            before = Some(fleet);
        }
    }

    #[test]
    fn a_hard_verdict_always_shows_at_once(inputs in inputs(), at in 0_usize..6, code in prop::sample::select(vec![46_u32, 62, 79, 95, 119])) {
        let at = at % inputs.endpoints.len();
        let mut good = inputs;
        make_best(&mut good, at);
        let mut weigher = Weigher::default();
        weigher.step(Time::ms(1_000_000), &good);
        let node = &mut good.nodes[at];
        node.received = Time::ms(1_000_001);
        node.gpus[0].xids.push(XidEvent { code, age: Span::ZERO, event_id: 9 });
        let fleet = weigher.step(Time::ms(1_000_001), &good);
        let endpoint = fleet.endpoint("llm", &format!("e{at}")).unwrap();
        prop_assert_eq!((endpoint.gate.get(), endpoint.hard), (0, HardState::Down));
    }

    #[test]
    fn silence_alone_closes_nothing(count in 1_usize..5, silent_ms in 0_u64..10_000_000) {
        let mut inputs = Inputs::default();
        for i in 0..count {
            inputs.endpoints.push(EndpointDefinition {
                service: "llm".into(),
                address: format!("e{i}"),
                node: Some(format!("n{i}")),
                gpus: vec![GpuRef::Index(0)],
                ..EndpointDefinition::default()
            });
            inputs.nodes.push(NodeReport {
                node: format!("n{i}"),
                received: Time::ms(1_000),
                interval: Span::ms(500),
                driver: DriverStatus::Ok,
                gpus: vec![GpuSample {
                    uuid: format!("g{i}"),
                    state: GpuState::Ok,
                    ..GpuSample::default()
                }],
                ..NodeReport::default()
            });
        }
        let mut weigher = Weigher::default();
        weigher.step(Time::ms(1_000), &inputs);
        let fleet = weigher.step(Time::ms(1_000 + silent_ms), &inputs);
        for e in &fleet.services[0].endpoints {
            prop_assert!(e.gate.get() >= 500 && e.hard == HardState::Up);
        }
    }
}
