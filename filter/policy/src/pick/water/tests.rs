use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

fn vessels(rows: &[(f64, f64, f64)]) -> Vec<Vessel> {
    rows.iter()
        .enumerate()
        .map(|(row, &(capacity, load, slots))| Vessel { row, capacity, load, slots, share: 0.0 })
        .collect()
}

fn plain(rows: &[(f64, f64)], amount: f64) -> Vec<f64> {
    let rows: Vec<_> = rows.iter().map(|&(w, n)| (w, n, 0.0)).collect();
    let mut v = vessels(&rows);
    pour_plain(&mut v, amount);
    v.iter().map(|v| v.share).collect()
}

fn slots(rows: &[(f64, f64, f64)], amount: f64, per_weight: f64) -> Vec<f64> {
    let mut v = vessels(rows);
    pour_slots(&mut v, amount, per_weight);
    v.iter().map(|v| v.share).collect()
}

fn check(found: &[f64], expected: &[f64]) {
    let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(close && found.len() == expected.len(), "{found:?} is not {expected:?}");
}

#[test]
fn plain_levels() {
    // idle and alike: evenly
    check(&plain(&[(1.0, 0.0), (1.0, 0.0)], 4.0), &[2.0, 2.0]);
    // level (4 + 2) / 2 = 3: 3 − 0 and 3 − 2
    check(&plain(&[(1.0, 0.0), (1.0, 2.0)], 4.0), &[3.0, 1.0]);
    // level (2 + 0) / 1 = 2 stays under the load of 5
    check(&plain(&[(1.0, 0.0), (1.0, 5.0)], 2.0), &[2.0, 0.0]);
    // level (6 + 3) / 3 = 3: 2·3 − 3 and 1·3 − 0
    check(&plain(&[(2.0, 3.0), (1.0, 0.0)], 6.0), &[3.0, 3.0]);
    // the limit of a huge pour is capacity: 1/4 and 3/4
    let shares = plain(&[(1.0, 9.0), (3.0, 0.0)], 1e9);
    assert!((shares[0] / 1e9 - 0.25).abs() < 1e-6);
}

#[test]
fn slot_levels_under_one() {
    // pace 2·1 for both; 8 and 4 slots. Level 1 would pour 2 + 2 = 4 of the 2: level 0.5, 1 each
    check(&slots(&[(1.0, 0.0, 8.0), (1.0, 0.0, 4.0)], 2.0, 2.0), &[1.0, 1.0]);
    // weights 4 and 1 with 4 slots each, pace 1 per weight: the second has 4 slots but pace 1,
    // so at level 1 it holds 1: 4 + 1 = 5 poured; 2.5 is level 0.5: 2 and 0.5
    check(&slots(&[(4.0, 0.0, 4.0), (1.0, 0.0, 4.0)], 2.5, 1.0), &[2.0, 0.5]);
}

#[test]
fn slot_levels_above_one() {
    // slots 4 and 2 are full; 3 more go by pace 2 and 1: level 2
    check(&slots(&[(2.0, 4.0, 4.0), (1.0, 2.0, 2.0)], 3.0, 1.0), &[2.0, 1.0]);
    // 1 slot of the first is free; of 4 requests it takes that one, and 3 queue by pace 2 and 1
    check(&slots(&[(2.0, 3.0, 4.0), (1.0, 2.0, 2.0)], 4.0, 1.0), &[3.0, 1.0]);
}

#[test]
fn a_free_slot_goes_before_a_queue() {
    // The fast one is full (8 of 8), the slow one has a slot: one request goes there. Plain
    // water-filling would compare 8/4 with 1/1 and send more than half to the slow one as well,
    // but with loads 8 and 3 it would still prefer the fast one: 9/4 < 4/1.
    let shares = slots(&[(4.0, 8.0, 8.0), (1.0, 3.0, 4.0)], 1.0, 4.0);
    check(&shares, &[0.0, 1.0]);
}

fn by_sorting(rows: &[(f64, f64)], amount: f64) -> f64 {
    let mut order: Vec<_> = rows.to_vec();
    order.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let (mut width, mut held, mut level) = (0.0, 0.0, f64::INFINITY);
    for (capacity, load) in order {
        if load / capacity >= level {
            break;
        }
        width += capacity;
        held += load;
        level = (amount + held) / width;
    }
    level
}

/// The level as 200 bisections find it.
fn by_bisection(rows: &[(f64, f64, f64)], amount: f64, per_weight: f64) -> Vec<f64> {
    let v = vessels(rows);
    let poured = |level: f64| -> Vec<f64> {
        v.iter().map(|v| positive(target(v, level, per_weight).0 - v.load)).collect()
    };
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..200 {
        let level = (low + high) / 2.0;
        if poured(level).iter().sum::<f64>() < amount { low = level } else { high = level }
    }
    poured(high)
}

proptest! {
    #[test]
    fn plain_agrees_with_sorting_and_sums_to_the_amount(
        rows in proptest::collection::vec((1.0..10_000.0f64, 0u32..500), 1..64), amount in 1.0..500.0f64,
    ) {
        let rows: Vec<(f64, f64)> = rows.into_iter().map(|(w, n)| (w, f64::from(n))).collect();
        let shares = plain(&rows, amount);
        let level = by_sorting(&rows, amount);
        for ((w, n), share) in rows.iter().zip(&shares) {
            prop_assert!((share - positive(level * w - n)).abs() < 1e-6 * (amount + n));
        }
        prop_assert!((shares.iter().sum::<f64>() - amount).abs() < 1e-6 * amount);
    }

    #[test]
    fn slots_agree_with_bisection_and_sum_to_the_amount(
        rows in proptest::collection::vec((1.0..10_000.0f64, 0u32..200, 1u32..200, 0.001..1.0f64), 1..64),
        amount in 1.0..500.0f64,
    ) {
        let per_weight = rows.iter().map(|r| f64::from(r.2) / r.0).fold(0.0, f64::max);
        let rows: Vec<_> = rows.iter()
            .map(|&(w, n, c, h)| (w * h, f64::from(n), f64::from(c) * h)).collect();
        let shares = slots(&rows, amount, per_weight);
        prop_assert!(shares.iter().all(|s| *s >= 0.0));
        prop_assert!((shares.iter().sum::<f64>() - amount).abs() < 1e-4 * amount, "{:?}", shares);
        for (found, expected) in shares.iter().zip(by_bisection(&rows, amount, per_weight)) {
            prop_assert!((found - expected).abs() < 1e-3 * amount, "{} {}", found, expected);
        }
    }

    #[test]
    fn nothing_breaks_on_odd_numbers(
        rows in proptest::collection::vec((any::<f64>(), any::<f64>(), any::<f64>()), 0..20),
        amount in any::<f64>(), per_weight in any::<f64>(),
    ) {
        let mut v = vessels(&rows);
        pour_plain(&mut v, amount);
        prop_assert!(v.iter().all(|v| v.share >= 0.0 && v.share.is_finite()));
        pour_slots(&mut v, amount, per_weight);
        prop_assert!(v.iter().all(|v| v.share >= 0.0 && v.share.is_finite()));
    }
}

#[test]
fn pouring_over_nothing_is_nothing() {
    assert_eq!(plain(&[], 3.0).len(), 0);
    assert_eq!(slots(&[], 3.0, 1.0).len(), 0);
}
