use alloc::{vec, vec::Vec};

use proptest::prelude::*;

use super::*;

const LI: Method = Method::LiSlots(Demand { unseen: 1.0, departed: 0.0, slots: Slots::Used });

const fn li(unseen: f64) -> Method {
    Method::LiSlots(Demand { unseen, departed: 0.0, slots: Slots::Ignored })
}

fn row(weight: f64, load: f64) -> Row {
    Row { reported: Reported::Fresh { others: load }, ..Row::idle(weight) }
}

fn order(method: Method, rows: &[Row], seed: u64, want: usize) -> (Vec<usize>, PickReason) {
    let mut table = Table::new(rows.to_vec());
    let mut picker = Picker::new();
    let picked = pick(&mut picker, method, &mut table, &mut Chance::seeded(seed), want);
    (picked.order.to_vec(), picked.reason)
}

/// Shares of first choices over many picks from one table whose loads stay as they are.
fn shares(method: Method, rows: &[Row], picks: u32) -> Vec<f64> {
    let mut table = Table::new(rows.to_vec());
    let (mut picker, mut chance) = (Picker::new(), Chance::seeded(42));
    let mut counts = vec![0_u32; rows.len()];
    for _ in 0..picks {
        let picked = picker.pick(method, &mut table, &mut chance, 1);
        counts[picked.order[0]] += 1;
    }
    counts.iter().map(|n| f64::from(*n) / f64::from(picks)).collect()
}

fn check(found: &[f64], expected: &[f64], within: f64) {
    let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= within);
    assert!(close && found.len() == expected.len(), "{found:?} is not {expected:?}");
}

const METHODS: [Method; 6] =
    [LI, li(20.0), Method::OwnCounts, Method::LeastRequest, Method::Weighted, Method::FreeMemory];

#[test]
fn nothing_to_pick_from_gives_nothing() {
    for method in METHODS {
        assert_eq!(order(method, &[], 1, 3).0.len(), 0);
        assert_eq!(order(method, &[Row { health: 0.0, ..Row::idle(5.0) }], 1, 3).0.len(), 0);
        assert_eq!(order(method, &[Row::idle(1.0), Row::idle(1.0)], 1, 0).0.len(), 0);
    }
}

#[test]
fn the_only_endpoint_is_picked_however_loaded() {
    for method in METHODS {
        let rows = [Row { health: 0.0, ..Row::idle(9.0) }, row(1.0, 1e6)];
        assert_eq!(order(method, &rows, 1, 3), (vec![1], PickReason::Only));
    }
}

#[test]
fn water_filling_follows_the_level() {
    // level (4 + 2) / 2 = 3: shares 3 and 1 of 4
    check(&shares(li(4.0), &[row(1.0, 0.0), row(1.0, 2.0)], 20_000), &[0.75, 0.25], 0.015);
    // level (6 + 3) / 3 = 3: 2·3 − 3 = 3 and 1·3 − 0 = 3 of 6
    check(&shares(li(6.0), &[row(2.0, 3.0), row(1.0, 0.0)], 20_000), &[0.5, 0.5], 0.015);
}

#[test]
fn one_unseen_request_goes_to_the_shortest_queue() {
    // alike: join the shortest queue; loads 4, 1, 3
    check(
        &shares(li(1.0), &[row(1.0, 4.0), row(1.0, 1.0), row(1.0, 3.0)], 1_000),
        &[0.0, 1.0, 0.0],
        0.0,
    );
    // queues per weight 8/4 = 2, 3/1 = 3; one more on the first makes 2.25 < 3
    check(&shares(li(1.0), &[row(4.0, 8.0), row(1.0, 3.0)], 1_000), &[1.0, 0.0], 0.0);
}

#[test]
fn a_flood_of_unseen_requests_means_capacity() {
    let rows = [row(1.0, 30.0), row(3.0, 0.0), row(4.0, 10.0)];
    check(&shares(li(1e9), &rows, 40_000), &[0.125, 0.375, 0.5], 0.01);
}

#[test]
fn health_scales_capacity() {
    // 10 × 0.3 = 3 against 1
    let rows = [Row { health: 0.3, ..Row::idle(10.0) }, Row::idle(1.0)];
    check(&shares(li(1e6), &rows, 20_000), &[0.75, 0.25], 0.015);
    check(&shares(Method::Weighted, &rows, 20_000), &[0.75, 0.25], 0.015);
}

#[test]
fn slots_are_used_only_when_all_are_known_and_wanted() {
    let known = Row { slots: Some(4.0), ..row(1.0, 0.0) };
    let used = Method::LiSlots(Demand { unseen: 2.0, departed: 0.0, slots: Slots::Used });
    assert_eq!(order(used, &[known, known], 1, 1).1, PickReason::LiSlots);
    assert_eq!(order(used, &[known, row(1.0, 0.0)], 1, 1).1, PickReason::LiPlain);
    assert_eq!(order(li(2.0), &[known, known], 1, 1).1, PickReason::LiPlain);
}

#[test]
fn what_ended_since_the_report_is_taken_out_by_pace() {
    let with = |weight, load, own| Row { slots: Some(8.0), own, ..row(weight, load - own) };
    let demand = |departed| Method::LiSlots(Demand { unseen: 1.0, departed, slots: Slots::Used });
    // Both full. Of 6 that ended the fast one had 4: loads 4 and 6. Slots per weight 8, so one more
    // brings the fast one to level 5 / 16, where the slow one would have 2.5.
    let rows = [with(2.0, 8.0, 0.0), with(1.0, 8.0, 0.0)];
    check(&shares(demand(6.0), &rows, 500), &[1.0, 0.0], 0.0);
    // Never more than the others had there: with 8 of our own nothing has ended at the first.
    let rows = [with(2.0, 8.0, 8.0), with(1.0, 8.0, 0.0)];
    check(&shares(demand(6.0), &rows, 500), &[0.0, 1.0], 0.0);
    // Nothing ended, as without: both queue, and a queue of the fast one drains faster.
    let rows = [with(2.0, 8.0, 0.0), with(1.0, 8.0, 0.0)];
    check(&shares(demand(0.0), &rows, 30_000), &[2.0 / 3.0, 1.0 / 3.0], 0.015);
}

#[test]
fn a_free_slot_beats_a_short_queue() {
    // Plain: (8+1)/4 = 2.25 < (3+1)/1 = 4, so the fast one. With slots the fast one is full.
    let rows =
        [Row { slots: Some(8.0), ..row(4.0, 8.0) }, Row { slots: Some(4.0), ..row(1.0, 3.0) }];
    check(&shares(li(1.0), &rows, 500), &[1.0, 0.0], 0.0);
    // pace per weight: max(8/4, 4/1) = 4
    check(&shares(LI, &rows, 500), &[0.0, 1.0], 0.0);
}

#[test]
fn a_silent_endpoint_counts_as_the_mean_or_as_its_last_value() {
    let stale = |others| Row { reported: Reported::Stale { others }, ..Row::idle(1.0) };
    // mean load per weight (2 + 4) / 2 = 3: the first fresh one with 2 takes all of one request
    let fresh = [row(1.0, 2.0), row(1.0, 4.0)];
    check(&shares(li(1.0), &[fresh[0], fresh[1], stale(0.0)], 500), &[1.0, 0.0, 0.0], 0.0);
    let unknown = Row { reported: Reported::Unknown, ..Row::idle(1.0) };
    check(&shares(li(1.0), &[fresh[0], fresh[1], unknown], 500), &[1.0, 0.0, 0.0], 0.0);
    // pour 4: level (4+2+3)/2 = 4.5 → over fresh 4 as well: (4+2+4+3)/3 = 4.333: 2.333, 0.333, 1.333
    let expected = [0.583, 0.083, 0.333];
    check(&shares(li(4.0), &[fresh[0], fresh[1], stale(0.0)], 20_000), &expected, 0.015);
    // its last value 10 is more than the mean: nothing
    check(&shares(li(4.0), &[fresh[0], fresh[1], stale(10.0)], 2_000)[2..], &[0.0], 0.0);
}

#[test]
fn without_any_fresh_report_own_counts_decide() {
    let unknown = |own| Row { reported: Reported::Unknown, own, ..Row::idle(1.0) };
    let (first, reason) = order(li(5.0), &[unknown(3.0), unknown(0.0)], 1, 2);
    assert_eq!((first, reason), (vec![1, 0], PickReason::OwnCounts));
}

#[test]
fn two_choices_compare_counts_per_capacity_without_adding_one() {
    let own = |weight, own| Row { own, ..Row::idle(weight) };
    // both drawn: 2/4 = 0.5 < 1/1
    check(&shares(Method::OwnCounts, &[own(4.0, 2.0), own(1.0, 1.0)], 500), &[1.0, 0.0], 0.0);
    // 0/1 < 1/4
    check(&shares(Method::OwnCounts, &[own(4.0, 1.0), own(1.0, 0.0)], 500), &[0.0, 1.0], 0.0);
    // a tie goes to the one drawn first: by capacity 4 to 1
    check(&shares(Method::OwnCounts, &[own(4.0, 0.0), own(1.0, 0.0)], 20_000), &[0.8, 0.2], 0.015);
}

#[test]
fn least_request_takes_the_larger_of_own_and_reported() {
    let rows = [Row { own: 0.0, ..row(1.0, 9.0) }, Row { own: 2.0, ..row(1.0, 0.0) }];
    check(&shares(Method::LeastRequest, &rows, 200), &[0.0, 1.0], 0.0);
    // Own counts see only 0 against 2.
    check(&shares(Method::OwnCounts, &rows, 200), &[1.0, 0.0], 0.0);
}

#[test]
fn free_memory_goes_round_by_capacity_times_free_memory() {
    let free = |weight, free| Row { memory_free: Some(free), ..Row::idle(weight) };
    // 1 × (0.9 − 0.1) = 0.8 against 2 × (0.3 − 0.1) = 0.4: exactly 2 to 1 in each three picks
    let found = shares(Method::FreeMemory, &[free(1.0, 0.9), free(2.0, 0.3)], 3_000);
    check(&found, &[2.0 / 3.0, 1.0 / 3.0], 0.001);
}

#[test]
fn free_memory_is_smooth() {
    // weights 2 and 1: never the same endpoint three times running
    let free = |weight| Row { memory_free: Some(0.6), ..Row::idle(weight) };
    let mut table = Table::new(vec![free(2.0), free(1.0)]);
    let (mut picker, mut chance) = (Picker::new(), Chance::seeded(5));
    let trace: Vec<usize> = (0..300)
        .map(|_| picker.pick(Method::FreeMemory, &mut table, &mut chance, 1).order[0])
        .collect();
    assert!(trace.windows(3).all(|w| w.contains(&0) && w.contains(&1)), "{trace:?}");
}

#[test]
fn memory_at_the_reserve_takes_nothing() {
    let free = |free| Row { memory_free: Some(free), ..Row::idle(1.0) };
    check(&shares(Method::FreeMemory, &[free(0.1), free(0.2)], 100), &[0.0, 1.0], 0.0);
    // As a fallback it still stands.
    assert_eq!(order(Method::FreeMemory, &[free(0.1), free(0.2)], 1, 2).0, [1, 0]);
}

#[test]
fn memory_that_all_servers_took_at_start_leaves_capacity() {
    let free = |weight, free| Row { memory_free: Some(free), ..Row::idle(weight) };
    let found = shares(Method::FreeMemory, &[free(3.0, 0.08), free(1.0, 0.05)], 4_000);
    check(&found, &[0.75, 0.25], 0.001);
}

#[test]
fn unknown_memory_is_the_mean_of_the_known() {
    let free = |free| Row { memory_free: free, ..Row::idle(1.0) };
    // mean (0.9 + 0.5) / 2 = 0.7: 0.8, 0.4, 0.6 of 1.8
    let found = shares(Method::FreeMemory, &[free(Some(0.9)), free(Some(0.5)), free(None)], 9_000);
    check(&found, &[0.444, 0.222, 0.333], 0.002);
    let found = shares(Method::FreeMemory, &[free(None), free(None)], 1_000);
    check(&found, &[0.5, 0.5], 0.001);
}

#[test]
fn proxies_that_start_together_do_not_go_round_in_step() {
    let rows = [Row::idle(1.0); 4];
    let firsts: alloc::collections::BTreeSet<usize> =
        (0..50).map(|seed| order(Method::FreeMemory, &rows, seed, 1).0[0]).collect();
    assert_eq!(firsts.len(), 4);
}

#[test]
fn the_first_fallback_is_on_another_node() {
    let on = |node| Row { node, ..row(1.0, 0.0) };
    let rows = [on(1), on(1), on(1), on(2)];
    for method in METHODS {
        for seed in 0..50 {
            let found = order(method, &rows, seed, 3).0;
            let nodes = [rows[found[0]].node, rows[found[1]].node];
            assert_ne!(nodes[0], nodes[1], "{method:?} {found:?}");
        }
    }
}

#[test]
fn with_one_node_fallbacks_come_from_it() {
    let on = |node| Row { node, ..row(1.0, 0.0) };
    for method in METHODS {
        assert_eq!(order(method, &[on(1), on(1), on(1)], 1, 3).0.len(), 3, "{method:?}");
        // Unknown nodes are not one node.
        assert_eq!(order(method, &[on(0), on(0)], 1, 2).0.len(), 2, "{method:?}");
    }
}

#[test]
fn fallbacks_without_a_share_are_the_least_loaded() {
    // all of one request goes to the idle one; the others follow by queue per weight: 2, 3, 9
    let rows = [row(1.0, 9.0), row(1.0, 0.0), row(2.0, 4.0), row(1.0, 3.0)];
    assert_eq!(order(li(1.0), &rows, 1, 4).0, [1, 2, 3, 0]);
}

#[test]
fn a_large_table_is_sampled_by_capacity() {
    // 100 rows, half of weight 1, half of weight 3
    let rows: Vec<Row> = (0..100).map(|i| row(if i < 50 { 1.0 } else { 3.0 }, 0.0)).collect();
    let heavy: f64 = shares(Method::Weighted, &rows, 20_000)[50..].iter().sum();
    assert!((heavy - 0.75).abs() < 0.015, "{heavy}");
    let picked: f64 = shares(li(16.0), &rows, 20_000)[50..].iter().sum();
    assert!(picked > 0.7, "{picked}");
}

#[test]
fn a_large_table_still_avoids_load() {
    // 90 of 100 are overloaded; 16 samples miss the ten idle ones in 0.9^16 = 18 % of the picks
    let rows: Vec<Row> = (0..100).map(|i| row(1.0, if i < 90 { 50.0 } else { 0.0 })).collect();
    let idle: f64 = shares(li(1.0), &rows, 5_000)[90..].iter().sum();
    assert!(idle > 0.78, "{idle}");
}

#[test]
fn a_large_table_with_one_giant_still_has_fallbacks() {
    let mut rows = vec![row(1.0, 0.0); 200];
    rows[7] = row(1e9, 0.0);
    for method in METHODS {
        let found = order(method, &rows, 3, 4).0;
        assert_eq!(found.len(), 4, "{method:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_picks() {
    let rows: Vec<Row> = (0..100).map(|i| row(f64::from(i + 1), f64::from(i % 7))).collect();
    for method in METHODS {
        for n in [2, 64, 65, 100] {
            assert_eq!(order(method, &rows[..n], 11, 4), order(method, &rows[..n], 11, 4));
        }
    }
}

#[test]
fn a_sink_gets_under_one_percent() {
    // success rates 0.05 among 1.0: the factor is at its floor of 0.001, however idle it looks
    let rates = [0.05, 1.0, 1.0, 1.0, 1.0, 1.0];
    let rows: Vec<Row> = rates
        .iter()
        .map(|rate| {
            let busy = if *rate < 0.5 { 0.0 } else { 6.0 };
            Row { health: crate::success::factor(*rate, 1.0), slots: Some(8.0), ..row(100.0, busy) }
        })
        .collect();
    for method in [LI, li(1.0), li(30.0), Method::Weighted] {
        let share = shares(method, &rows, 20_000)[0];
        assert!(share < 0.01, "{method:?}: {share}");
    }
}

fn any_row() -> impl Strategy<Value = Row> {
    let number = || prop_oneof![3 => 0.0..10_000.0f64, 1 => any::<f64>()];
    let reported = prop_oneof![
        number().prop_map(|others| Reported::Fresh { others }),
        number().prop_map(|others| Reported::Stale { others }),
        Just(Reported::Unknown),
    ];
    (
        (number(), prop_oneof![2 => 0.0..=1.0f64, 1 => Just(0.0), 1 => any::<f64>()]),
        proptest::option::of(number()),
        reported,
        number(),
        0_u32..4,
        proptest::option::of(number()),
    )
        .prop_map(|((weight, health), slots, reported, own, node, memory_free)| Row {
            weight,
            health,
            slots,
            reported,
            own,
            node,
            memory_free,
            turn: None,
        })
}

fn any_method() -> impl Strategy<Value = Method> {
    let amount = || prop_oneof![1.0..1e9f64, any::<f64>()];
    let demand = (amount(), amount(), any::<bool>()).prop_map(|(unseen, departed, used)| {
        Method::LiSlots(Demand {
            unseen,
            departed,
            slots: if used { Slots::Used } else { Slots::Ignored },
        })
    });
    prop_oneof![
        3 => demand,
        1 => Just(Method::OwnCounts),
        1 => Just(Method::LeastRequest),
        1 => Just(Method::Weighted),
        1 => Just(Method::FreeMemory),
    ]
}

proptest! {
    #[test]
    fn picks_are_distinct_healthy_and_no_more_than_wanted(
        rows in proptest::collection::vec(any_row(), 0..100),
        method in any_method(), seed in any::<u64>(), want in 0_usize..8,
    ) {
        let able = rows.iter().filter(|r| {
            let capacity = r.weight * r.health;
            capacity > 0.0 && capacity.is_finite()
        }).count();
        let (found, _) = order(method, &rows, seed, want);
        prop_assert_eq!(found.len(), want.min(able));
        let distinct: alloc::collections::BTreeSet<_> = found.iter().collect();
        prop_assert_eq!(distinct.len(), found.len());
        for i in found {
            prop_assert!(rows[i].weight * rows[i].health > 0.0);
        }
    }

    #[test]
    fn an_order_of_rows_changes_no_share(
        mut rows in proptest::collection::vec((1.0..100.0f64, 0_u32..20), 2..12),
        unseen in 1.0..50.0f64,
    ) {
        // Shares are computed, not drawn: compare them vessel by vessel.
        let poured = |rows: &[(f64, u32)]| {
            let rows = rows.iter().map(|&(w, n)| row(w, f64::from(n))).collect();
            let table = Table::new(rows);
            let mut picker = Picker::new();
            picker.fill_vessels(&table, &mut Chance::seeded(1));
            water::pour_plain(&mut picker.vessels, unseen);
            picker.vessels.iter().map(|v| v.share).collect::<Vec<_>>()
        };
        let mut before = poured(&rows);
        rows.reverse();
        let after = poured(&rows);
        before.reverse();
        for (a, b) in before.iter().zip(&after) {
            prop_assert!((a - b).abs() < 1e-6 * unseen);
        }
    }

    #[test]
    fn alike_endpoints_with_one_unseen_request_join_the_shortest_queue(
        loads in proptest::collection::vec(0_u32..50, 2..64), seed in any::<u64>(),
    ) {
        let rows: Vec<Row> = loads.iter().map(|n| row(7.0, f64::from(*n))).collect();
        let first = order(li(1.0), &rows, seed, 1).0[0];
        prop_assert_eq!(loads[first], *loads.iter().min().unwrap());
    }

    #[test]
    fn unlike_endpoints_with_one_unseen_request_never_exceed_the_best_finish(
        rows in proptest::collection::vec((1_u32..100, 0_u32..50), 2..64), seed in any::<u64>(),
    ) {
        // A share needs n/W below the level, and the level is at most the least (n + 1)/W.
        let table: Vec<Row> = rows.iter().map(|&(w, n)| row(w.into(), n.into())).collect();
        let first = order(li(1.0), &table, seed, 1).0[0];
        let best = rows.iter().map(|&(w, n)| (f64::from(n) + 1.0) / f64::from(w))
            .fold(f64::INFINITY, f64::min);
        let (w, n) = rows[first];
        prop_assert!(f64::from(n) / f64::from(w) < best);
    }

    #[test]
    fn silence_never_beats_the_best_report(
        fresh in proptest::collection::vec((1.0..100.0f64, 0_u32..50), 1..30),
        weight in 1.0..100.0f64, last in 0_u32..50, seed in any::<u64>(), known in any::<bool>(),
    ) {
        let others = f64::from(last);
        let reported = if known { Reported::Stale { others } } else { Reported::Unknown };
        let mut rows: Vec<Row> = fresh.iter().map(|&(w, n)| row(w, f64::from(n))).collect();
        rows.push(Row { reported, ..Row::idle(weight) });
        let table = Table::new(rows);
        let mut picker = Picker::new();
        prop_assert!(picker.fill_vessels(&table, &mut Chance::seeded(seed)));
        let per_capacity: Vec<f64> = picker.vessels.iter().map(|v| v.load / v.capacity).collect();
        let (silent, heard) = per_capacity.split_last().unwrap();
        let best = heard.iter().copied().fold(f64::INFINITY, f64::min);
        prop_assert!(*silent >= best - 1e-9);
    }

    #[test]
    fn shares_tend_to_capacity_as_unseen_requests_grow(
        rows in proptest::collection::vec((1.0..100.0f64, 0_u32..50), 2..30),
    ) {
        let table = Table::new(rows.iter().map(|&(w, n)| row(w, f64::from(n))).collect());
        let mut picker = Picker::new();
        picker.fill_vessels(&table, &mut Chance::seeded(1));
        water::pour_plain(&mut picker.vessels, 1e9);
        let total: f64 = rows.iter().map(|r| r.0).sum();
        for v in &picker.vessels {
            prop_assert!((v.share / 1e9 - v.capacity / total).abs() < 1e-4);
        }
    }
}
