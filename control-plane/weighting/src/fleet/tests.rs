use alloc::{format, vec, vec::Vec};

use super::*;
use crate::{
    gate::GateReason,
    input::*,
    snapshot::HardState,
    testkit::{Rig, at, best_gpu, gates, weights},
};

fn reasons(fleet: &FleetSnapshot, address: &str) -> Vec<GateReason> {
    at(fleet, address).explanation.gates.iter().map(|g| g.reason).collect()
}

#[test]
fn alike_and_healthy_endpoints_are_alike() {
    let fleet = Rig::new().report();
    assert_eq!(weights(&fleet), [10_000; 4]);
    assert_eq!(gates(&fleet), [1_000; 4]);
    assert!(fleet.alarms.is_empty());
    assert!(fleet.services[0].endpoints.iter().all(|e| e.hard == HardState::Up));
}

#[test]
fn no_endpoints_is_an_empty_fleet() {
    let fleet = Weigher::default().step(Time::ms(0), &Inputs::default());
    assert_eq!(fleet, FleetSnapshot::default());
}

#[test]
fn xid_79_closes_the_endpoint_in_the_very_next_step() {
    let mut rig = Rig::new();
    rig.run(5_000);
    rig.xid(1, 79);
    let fleet = rig.after(1);
    assert_eq!(gates(&fleet), [1_000, 0, 1_000, 1_000]);
    assert_eq!(at(&fleet, "e1").hard, HardState::Down);
    assert_eq!(reasons(&fleet, "e1"), [GateReason::XidFatal]);
    assert_eq!(fleet.alarms, [Alarm::NodeSuspect { node: "n0".into() }]);
}

#[test]
fn a_throttled_gpu_shows_in_the_very_next_step() {
    let mut rig = Rig::new();
    rig.run(5_000);
    rig.clocks(2).event_reasons = Some(0x40);
    assert_eq!(gates(&rig.after(1)), [1_000, 1_000, 500, 1_000]);
}

#[test]
fn a_gate_rises_by_a_tenth_a_second() {
    let mut rig = Rig::new();
    rig.run(5_000);
    rig.clocks(0).event_reasons = Some(0x80);
    assert_eq!(gates(&rig.after(500))[0], 500);
    rig.clocks(0).event_reasons = Some(0);
    // 0.5 + 0.1·0.5 s, then 0.1·1 s more, and full after 5 s.
    assert_eq!(gates(&rig.after(500))[0], 550);
    assert_eq!(gates(&rig.after(1_000))[0], 650);
    assert_eq!(gates(&rig.run(3_500))[0], 1_000);
}

#[test]
fn a_lost_gpu_returns_after_three_good_reports_and_then_slowly() {
    let mut rig = Rig::new();
    rig.run(5_000);
    rig.gpu(0).state = GpuState::Lost;
    let lost = rig.after(500);
    assert_eq!((at(&lost, "e0").gate.get(), at(&lost, "e0").hard), (0, HardState::Down));
    rig.gpu(0).state = GpuState::Ok;
    assert_eq!(reasons(&rig.after(500), "e0"), [GateReason::GpuReturning]);
    assert_eq!(at(&rig.after(500), "e0").hard, HardState::Down);
    let back = rig.after(500);
    assert_eq!(at(&back, "e0").hard, HardState::Up);
    assert_eq!(at(&back, "e0").gate.get(), 50); // 0.1/s · 0.5 s
    assert_eq!(at(&back, "e0").healthy_for, Some(Span::ZERO));
    assert_eq!(at(&rig.after(500), "e0").healthy_for, Some(Span::ms(500)));
}

#[test]
fn hung_and_missing_gpus_are_down() {
    for (state, reason) in
        [(GpuState::Hung, GateReason::GpuHung), (GpuState::Missing, GateReason::GpuMissing)]
    {
        let mut rig = Rig::new();
        rig.run(1_000);
        rig.gpu(3).state = state;
        let fleet = rig.after(500);
        assert_eq!(at(&fleet, "e3").hard, HardState::Down);
        assert_eq!(reasons(&fleet, "e3"), [reason]);
    }
}

#[test]
fn a_hung_or_absent_driver_is_avoided_but_neither_idle_nor_down() {
    for (driver, gate) in [
        (DriverStatus::Hung, 250),
        (DriverStatus::Absent, 500),
        (DriverStatus::Mismatch, 500),
        (DriverStatus::Failed, 500),
    ] {
        let mut rig = Rig::new();
        rig.run(2_000);
        rig.inputs.nodes[0].driver = driver;
        rig.inputs.nodes[0].gpus.clear();
        let fleet = rig.after(500);
        assert_eq!(gates(&fleet), [gate, gate, 1_000, 1_000], "{driver:?}");
        assert_eq!(at(&fleet, "e0").hard, HardState::Up);
        let later = rig.run(30_000);
        assert!(weights(&later)[0] < weights(&later)[2], "unknown must not weigh like healthy");
    }
}

#[test]
fn a_gpu_that_its_node_does_not_know_is_avoided() {
    let mut rig = Rig::new();
    rig.inputs.endpoints[0].gpus = vec![GpuRef::Index(9)];
    let fleet = rig.report();
    assert_eq!(gates(&fleet)[0], 500);
    assert_eq!(reasons(&fleet, "e0"), [GateReason::GpuUnreported]);
}

#[test]
fn silence_of_one_node_of_four_costs_half_at_most() {
    let mut rig = Rig::sized(8);
    rig.run(2_000);
    // Stale limit 5 s: nothing; 10 s: 1 − 0.5·5/10 = 0.75; 15 s: 0.5, for ever.
    assert_eq!(gates(&rig.run_without(&[0], 5_000))[0], 1_000);
    assert_eq!(gates(&rig.run_without(&[0], 5_000))[0], 750);
    assert_eq!(gates(&rig.run_without(&[0], 5_000))[0], 500);
    let late = rig.run_without(&[0], 300_000);
    assert_eq!(gates(&late)[0], 500);
    assert_eq!(at(&late, "e0").hard, HardState::Up);
    assert!(weights(&late)[0] < weights(&late)[7]);
    assert_eq!(at(&late, "e0").age, Some(Span::ms(315_000)));
}

#[test]
fn silence_of_many_nodes_together_changes_nothing() {
    let mut rig = Rig::sized(8);
    let before = rig.run(20_000);
    // 2 of 4 nodes: more than 30 %.
    let after = rig.run_without(&[0, 1], 120_000);
    assert_eq!((gates(&after), weights(&after)), (gates(&before), weights(&before)));
    assert_eq!(after.alarms, [Alarm::MassSilence { service: "llm".into() }]);
    let all = rig.run_without(&[0, 1, 2, 3], 600_000);
    assert_eq!((gates(&all), weights(&all)), (gates(&before), weights(&before)));
}

#[test]
fn a_latched_verdict_survives_the_silence_and_the_restart_of_its_reporter() {
    let mut rig = Rig::sized(8);
    rig.gpu(0).recovery_action = None;
    rig.run(2_000);
    rig.xid(0, 48);
    rig.after(500);
    let silent = rig.run_without(&[0], 60_000);
    assert_eq!(gates(&silent)[0], 0);
    rig.inputs.nodes[0].boot_id = "again".into();
    rig.gpu(0).xids.clear();
    assert_eq!(gates(&rig.run(30_000))[0], 0);
    assert!(rig.weigher.acknowledge("n0", "g0"));
    assert!(!rig.weigher.acknowledge("n0", "nobody"));
    assert_eq!(gates(&rig.run(15_000))[0], 1_000);
}

#[test]
fn a_node_without_any_report_leaves_verdicts_in_force() {
    let mut rig = Rig::sized(8);
    rig.run(2_000);
    rig.xid(0, 95);
    rig.after(500);
    let node = rig.inputs.nodes.remove(0);
    assert_eq!(gates(&rig.run(5_000))[0], 0);
    drop(node);
}

#[test]
fn a_fast_gate_never_rises_while_health_data_is_late() {
    let mut rig = Rig::new();
    rig.run(2_000);
    rig.clocks(0).event_reasons = Some(0x40);
    rig.after(500);
    // The node still reports, but the clocks are no longer read.
    rig.gpu(0).clocks = None;
    let fleet = rig.run(20_000);
    assert_eq!(gates(&fleet)[0], 500);
    assert!(reasons(&fleet, "e0").contains(&GateReason::HeldForData));
    // After a minute their absence is the normal state.
    assert_eq!(gates(&rig.run(50_000))[0], 1_000);
}

#[test]
fn draining_is_soft() {
    let mut rig = Rig::new();
    rig.run(1_000);
    rig.inputs.endpoints[2].is_draining = true;
    let fleet = rig.after(500);
    assert_eq!((at(&fleet, "e2").gate.get(), at(&fleet, "e2").hard), (0, HardState::Draining));
}

#[test]
fn losing_most_of_the_capacity_raises_the_alarm_but_hides_no_hard_verdict() {
    let mut rig = Rig::new();
    rig.run(5_000);
    for i in 0..3 {
        rig.gpu(i).state = GpuState::Lost;
    }
    let fleet = rig.after(500);
    assert_eq!(gates(&fleet), [0, 0, 0, 1_000]);
    assert_eq!(fleet.alarms, [Alarm::LowCapacity { service: "llm".into() }]);
}

#[test]
fn exactly_half_of_the_capacity_is_enough() {
    let mut rig = Rig::new();
    rig.run(5_000);
    for i in 0..2 {
        rig.gpu(i).state = GpuState::Lost;
    }
    assert!(rig.after(500).alarms.is_empty());
}

#[test]
fn soft_verdicts_on_most_of_the_fleet_hold_the_last_good_gates() {
    let mut rig = Rig::new();
    let before = rig.run(5_000);
    for i in 0..3 {
        // 0.25 (hung driver) would be eligible; 0.5·0.5·0.2 = 0.05 is not.
        rig.gpu(i).state = GpuState::Slow;
        rig.clocks(i).event_reasons = Some(0x40);
        rig.gpu(i).memory.as_mut().unwrap().values.free_bytes = Some(0);
    }
    let fleet = rig.after(500);
    assert_eq!(gates(&fleet), gates(&before));
    assert_eq!(fleet.alarms, [Alarm::LowCapacity { service: "llm".into() }]);
    assert!((at(&fleet, "e0").explanation.gate_raw - 0.05).abs() < 1e-9);
    assert_eq!(at(&fleet, "e0").explanation.held, Some(crate::HoldReason::LowCapacity));
}

#[test]
fn weight_follows_the_type() {
    let mut rig = Rig::new();
    for i in [1, 3] {
        rig.gpu(i).name = "Tesla V100-SXM2-32GB".into();
    }
    let fleet = rig.report();
    // V100 0.45 of an A100 at equal scores.
    assert_eq!(weights(&fleet), [10_000, 4_500, 10_000, 4_500]);
    assert_eq!(at(&fleet, "e1").type_weight.get(), 4_500);
    assert_eq!(at(&fleet, "e1").gpu_type.as_deref(), Some("Tesla V100-SXM2-32GB"));
}

#[test]
fn the_operators_capacity_wins_over_the_type() {
    let mut rig = Rig::new();
    rig.inputs.endpoints[0].capacity = Some(0.5);
    assert_eq!(weights(&rig.report()), [5_000, 10_000, 10_000, 10_000]);
}

#[test]
fn several_gpus_add_up_and_the_slowest_sets_the_gate() {
    let mut rig = Rig::new();
    rig.inputs.endpoints[0].gpus = vec![GpuRef::Index(0), GpuRef::Uuid("g1".into())];
    assert_eq!(weights(&rig.report()), [10_000, 5_000, 5_000, 5_000]);
    rig.clocks(0).event_reasons = Some(0x40);
    rig.clocks(1).event_reasons = Some(0x40);
    assert_eq!(gates(&rig.after(500))[0], 500); // min(0.5, 0.5), no product
}

#[test]
fn an_nvlink_fault_closes_only_what_spans_gpus() {
    let mut rig = Rig::new();
    rig.inputs.endpoints[0].gpus = vec![GpuRef::Index(0), GpuRef::Index(1)];
    rig.run(1_000);
    rig.xid(1, 74);
    let fleet = rig.after(500);
    assert_eq!((gates(&fleet)[0], at(&fleet, "e0").hard), (0, HardState::Down));
    assert_eq!((gates(&fleet)[1], at(&fleet, "e1").hard), (500, HardState::Up));
}

#[test]
fn a_hot_loaded_gpu_loses_weight_slowly() {
    let mut rig = Rig::new();
    rig.run(5_000);
    rig.gpu(0).utilization.as_mut().unwrap().values.sm_percent = Some(100);
    rig.gpu(0).thermal.as_mut().unwrap().values.temperature_c = Some(75);
    let soon = weights(&rig.after(500))[0];
    let later = weights(&rig.run(60_000))[0];
    assert!(soon > 9_000, "{soon}");
    assert!(later < 9_000, "{later}");
    assert!(later > 3_333, "0.5/1.5 is the least that a score can do: {later}");
}

#[test]
fn a_new_endpoint_ramps_up_and_those_of_the_start_do_not() {
    let mut rig = Rig::sized(4);
    let fleet = rig.run(20_000);
    assert!(fleet.services[0].endpoints.iter().all(|e| e.healthy_for.is_none()));
    let more = Rig::sized(6);
    rig.inputs.endpoints = more.inputs.endpoints;
    rig.inputs.nodes.push(more.inputs.nodes[2].clone());
    let fleet = rig.after(500);
    assert_eq!(at(&fleet, "e4").healthy_for, Some(Span::ZERO));
    assert_eq!(at(&fleet, "e0").healthy_for, None);
    assert_eq!(weights(&fleet), [10_000; 6]);
}

#[test]
fn a_removed_endpoint_is_forgotten() {
    let mut rig = Rig::new();
    rig.run(1_000);
    rig.inputs.endpoints.remove(0);
    rig.inputs.nodes.remove(0);
    let fleet = rig.after(500);
    assert_eq!(fleet.services[0].endpoints.len(), 3);
    rig.inputs.endpoints.clear();
    assert!(rig.after(500).services.is_empty());
    assert!(rig.weigher.services.is_empty());
    assert_eq!(rig.weigher.gpus.len(), 2, "reported ones stay");
}

#[test]
fn workloads_bind_gpus_and_engines_but_create_no_endpoints() {
    let mut rig = Rig::new();
    rig.inputs.endpoints[0].gpus.clear();
    rig.inputs.endpoints[0].node = None;
    rig.inputs.nodes[0].workloads = vec![
        Workload {
            endpoint: "e0".into(),
            service: "llm".into(),
            gpu_uuids: vec!["g1".into()],
            engine: Some(Aged {
                age: Span::ZERO,
                values: Engine { running: Some(3), waiting: Some(2), ..Engine::default() },
            }),
        },
        Workload { endpoint: "stranger".into(), ..Workload::default() },
    ];
    rig.clocks(1).event_reasons = Some(0x40);
    let fleet = rig.report();
    assert_eq!(fleet.services[0].endpoints.len(), 4);
    assert_eq!(at(&fleet, "e0").in_flight, Some(5));
    assert_eq!(at(&fleet, "e0").gate.get(), 500);
    assert_eq!(at(&fleet, "e0").node.as_deref(), Some("n0"));
}

#[test]
fn a_node_cannot_speak_for_an_endpoint_of_another() {
    let mut rig = Rig::new();
    rig.inputs.nodes[1].workloads.push(Workload {
        endpoint: "e0".into(),
        gpu_uuids: vec!["g2".into()],
        engine: Some(Aged {
            age: Span::ZERO,
            values: Engine { running: Some(9), ..Engine::default() },
        }),
        ..Workload::default()
    });
    assert_eq!(at(&rig.report(), "e0").in_flight, None);
}

#[test]
fn two_reporters_may_share_a_node() {
    let mut rig = Rig::new();
    let mut second = rig.inputs.nodes[0].clone();
    second.boot_id = "second".into();
    second.gpus.remove(0);
    rig.inputs.nodes[0].gpus.remove(1);
    rig.inputs.nodes.push(second);
    rig.run(2_000);
    rig.inputs.nodes[2].gpus[0].state = GpuState::Lost;
    assert_eq!(gates(&rig.after(500)), [1_000, 0, 1_000, 1_000]);
}

#[test]
fn in_flight_comes_from_the_engine_then_from_the_proxies_then_from_nobody() {
    let mut rig = Rig::new();
    rig.engine(0, Engine { running: Some(4), waiting: Some(1), ..Engine::default() });
    for address in ["e0", "e1"] {
        rig.inputs.feedback.push(EndpointFeedback {
            service: "llm".into(),
            address: address.into(),
            in_flight: Some(7),
            ..EndpointFeedback::default()
        });
    }
    let fleet = rig.report();
    let seen: Vec<_> = ["e0", "e1", "e2"].map(|e| at(&fleet, e).in_flight).into();
    assert_eq!(seen, [Some(5), Some(7), None]);
}

#[test]
fn an_old_engine_sample_gives_way_to_the_proxies() {
    let mut rig = Rig::new();
    rig.engine(0, Engine { running: Some(4), ..Engine::default() });
    rig.inputs.nodes[0].workloads[0].engine.as_mut().unwrap().age = Span::ms(1_501);
    assert_eq!(at(&rig.report(), "e0").in_flight, None);
    rig.inputs.nodes[0].workloads[0].engine.as_mut().unwrap().age = Span::ms(1_500);
    assert_eq!(at(&rig.after(1), "e0").in_flight, Some(4));
}

#[test]
fn a_queue_counts_once_it_has_been_long_without_a_break() {
    let mut rig = Rig::new();
    let gate = |rig: &mut Rig, waiting, ms| {
        let engine = Engine { running: Some(8), slots: Some(8), ..Engine::default() };
        rig.engine(0, Engine { waiting: Some(waiting), ..engine });
        at(&rig.after(ms), "e0").gate.get()
    };
    rig.report();
    assert_eq!(gate(&mut rig, 17, 500), 1_000);
    assert_eq!(gate(&mut rig, 17, 9_500), 1_000);
    assert_eq!(gate(&mut rig, 16, 500), 1_000, "2·8 is not long: the time begins anew");
    assert_eq!(gate(&mut rig, 17, 500), 1_000);
    assert_eq!(gate(&mut rig, 17, 9_999), 1_000);
    assert_eq!(gate(&mut rig, 17, 1), 300);
}

#[test]
fn an_endpoints_age_is_that_of_its_count_of_requests() {
    let mut rig = Rig::new();
    rig.engine(0, Engine { running: Some(4), ..Engine::default() });
    rig.engine(1, Engine { waiting: Some(4), ..Engine::default() });
    for workload in 0..2 {
        rig.inputs.nodes[0].workloads[workload].engine.as_mut().unwrap().age = Span::ms(400);
    }
    let fleet = rig.report();
    // The driver's figures are new in both; without a count they are what there is.
    assert_eq!(at(&fleet, "e0").age, Some(Span::ms(400)));
    assert!(at(&fleet, "e1").age < Some(Span::ms(400)));
}

#[test]
fn arrivals_and_service_time_follow_the_counters() {
    let mut rig = Rig::new();
    for i in 0..4 {
        rig.engine(i, Engine { running: Some(5), waiting: Some(0), ..Engine::default() });
    }
    let feed = |rig: &mut Rig, arrivals_total| {
        rig.inputs.services =
            vec![ServiceFeedback { service: "llm".into(), arrivals_total, proxies_live: 3 }];
    };
    feed(&mut rig, 1_000);
    assert_eq!(rig.report().services[0].arrival_rate, None, "one look shows no rate");
    feed(&mut rig, 1_005);
    let fleet = rig.after(500);
    // 5 in 0.5 s = 10/s; 20 in flight / 10 per s = 2 s.
    assert_eq!(fleet.services[0].arrival_rate, Some(10.0));
    assert_eq!(fleet.services[0].mean_service, Some(Span::secs(2)));
    assert_eq!(fleet.services[0].proxies_live, 3);
    rig.inputs.services.clear();
    assert_eq!(rig.after(500).services[0].arrival_rate, None);
}

#[test]
fn what_is_down_does_not_hide_the_service_time_of_the_others() {
    let mut rig = Rig::new();
    for i in 0..3 {
        rig.engine(i, Engine { running: Some(2), waiting: Some(0), ..Engine::default() });
    }
    let step = |rig: &mut Rig, arrivals_total| {
        rig.inputs.services =
            vec![ServiceFeedback { service: "llm".into(), arrivals_total, proxies_live: 1 }];
        rig.after(500).services[0].mean_service
    };
    step(&mut rig, 0);
    assert_eq!(step(&mut rig, 3), None, "e3 is up and unknown");
    rig.gpu(3).state = GpuState::Lost;
    assert_eq!(step(&mut rig, 6), Some(Span::secs(1))); // 3·2 in flight / 6 per s
}

#[test]
fn removing_the_largest_endpoint_scales_the_others_up() {
    let mut rig = Rig::new();
    for i in 1..4 {
        rig.gpu(i).name = "Tesla T4".into();
    }
    assert_eq!(weights(&rig.report()), [10_000, 1_500, 1_500, 1_500]);
    rig.inputs.endpoints.remove(0);
    assert_eq!(weights(&rig.after(500)), [10_000; 3]);
}

#[test]
fn the_same_step_again_says_the_same() {
    let mut rig = Rig::new();
    rig.clocks(1).event_reasons = Some(0x08);
    rig.xid(2, 13);
    rig.inputs.feedback.push(EndpointFeedback {
        service: "llm".into(),
        address: "e1".into(),
        broken_total: 5,
        ..EndpointFeedback::default()
    });
    let first = rig.run(2_000);
    let again = rig.weigher.step(rig.now, &rig.inputs);
    assert_eq!(first, again);
}

#[test]
fn every_factor_is_a_named_number() {
    let mut rig = Rig::new();
    rig.run(1_000);
    rig.gpu(0).thermal.as_mut().unwrap().values.temperature_c = Some(85);
    let fleet = rig.after(500);
    let rows = at(&fleet, "e0").explanation.rows();
    let value = |name: &str| rows.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
    // 90 − 85 = 5 of 10 degrees: 0.5 + 0.5·0.5.
    assert_eq!(value("gate.g0.temperature_margin"), Some(0.75));
    assert_eq!(value("gate.product"), Some(0.75));
    for name in ["score.smoothed", "capacity.type", "capacity.used", "share.used"] {
        assert!(value(name).is_some(), "{name}");
    }
    assert_eq!(value("indicator.temperature.measured"), Some(85.0));
    assert!(rows.iter().all(|(_, v)| v.is_finite()));
}

#[test]
fn services_do_not_touch_each_other() {
    let mut rig = Rig::new();
    for i in [2, 3] {
        rig.inputs.endpoints[i].service = "other".into();
        rig.gpu(i).name = "Tesla T4".into();
    }
    let fleet = rig.report();
    let names: Vec<_> = fleet.services.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["llm", "other"]);
    let all: Vec<u16> =
        fleet.services.iter().flat_map(|s| s.endpoints.iter().map(|e| e.weight.get())).collect();
    assert_eq!(all, [10_000; 4]);
}

#[test]
fn clocks_that_step_back_do_no_harm() {
    let mut rig = Rig::new();
    rig.run(5_000);
    rig.now = Time::ms(10);
    let fleet = rig.weigher.step(rig.now, &rig.inputs);
    assert_eq!(gates(&fleet), [1_000; 4]);
    assert_eq!(gates(&rig.run(5_000)), [1_000; 4]);
}

#[test]
fn one_endpoint_alone_has_full_weight() {
    let mut rig = Rig::sized(1);
    assert_eq!(weights(&rig.report()), [10_000]);
    rig.gpu(0).utilization = None;
    assert_eq!(weights(&rig.run(10_000)), [10_000]);
}

#[test]
fn many_endpoints_are_fine() {
    let mut rig = Rig::sized(512);
    rig.gpu(17).state = GpuState::Lost;
    let fleet = rig.report();
    assert_eq!(fleet.services[0].endpoints.len(), 512);
    assert_eq!(at(&fleet, "e17").gate.get(), 0);
    assert_eq!(best_gpu("x", 0).uuid, "x");
    assert_eq!(format!("{:?}", at(&fleet, "e17").hard), "Down");
}
