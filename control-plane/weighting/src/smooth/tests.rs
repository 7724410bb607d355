use super::*;

fn near(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (a, e) in actual.iter().zip(expected) {
        assert!((a - e).abs() < 1e-6, "{actual:?} is not {expected:?}");
    }
}

#[test]
fn gates_fall_at_once_and_rise_slowly() {
    let next = |old, target, ms| next_gate(old, target, Span::ms(ms), Rise::Allowed);
    assert_eq!(next(None, 0.7, 0), 0.7);
    assert_eq!(next(Some(1.0), 0.0, 0), 0.0);
    assert_eq!(next(Some(0.0), 1.0, 1_000), 0.1);
    assert_eq!(next(Some(0.95), 1.0, 1_000), 1.0);
    assert_eq!(next(Some(0.0), 1.0, 3_600_000), 0.5); // at most 5 s count
    assert_eq!(next(Some(0.5), f64::NAN, 1_000), 0.0);
    assert_eq!(next_gate(Some(0.5), 1.0, Span::secs(1), Rise::Held), 0.5);
    assert_eq!(next_gate(Some(0.5), 0.2, Span::secs(1), Rise::Held), 0.2);
}

#[test]
fn per_mille_is_never_rounded_up_nor_down_to_closed() {
    let check = |gate, expected| assert_eq!(per_mille(gate).get(), expected, "{gate}");
    check(0.0, 0);
    check(1e-9, 1);
    check(0.0019, 1);
    check(0.3, 300);
    check(0.999_9, 999);
    check(1.0, 1_000);
    check(f64::NAN, 0);
    check(7.0, 1_000);
}

#[test]
fn shares_sum_to_one_whatever_comes() {
    near(&shares(&[1.0, 3.0]), &[0.25, 0.75]);
    near(&shares(&[0.0, 0.0]), &[0.5, 0.5]);
    near(&shares(&[f64::NAN, 2.0, -1.0]), &[0.0, 1.0, 0.0]);
    near(&shares(&[]), &[]);
}

#[test]
fn no_share_above_three_times_the_fair_one() {
    let fair = [0.25; 4];
    near(
        &within_bounds(&[0.97, 0.01, 0.01, 0.01], &fair),
        &[0.75, 1.0 / 12.0, 1.0 / 12.0, 1.0 / 12.0],
    );
    near(&within_bounds(&[0.74, 0.26, 0.0, 0.0], &fair)[2..], &[0.0025, 0.0025]); // 1 % of 0.25
}

#[test]
fn two_endpoints_have_no_ceiling() {
    near(&within_bounds(&[0.99, 0.01], &[0.2, 0.8]), &[0.99, 0.01]);
    near(&within_bounds(&[1.0, 0.0], &[0.5, 0.5]), &[0.995, 0.005]); // floor 0.01·0.5
    near(&within_bounds(&[1.0], &[1.0]), &[1.0]);
}

#[test]
fn shares_move_by_a_tenth_a_second_and_by_half_of_themselves() {
    let moved = |old: &[f64], target: &[f64], secs| {
        move_shares(&old.iter().copied().map(Some).collect::<Vec<_>>(), target, Span::secs(secs))
    };
    // Rise 0.5 → 0.9: 0.1 in one second; the fall 0.5 → 0.1 may be 0.1 as well.
    near(&moved(&[0.5, 0.5], &[0.9, 0.1], 1), &[0.6, 0.4]);
    // Rise 0.1 → 0.3: ×1.5 allows 0.05, a quarter of the way.
    near(&moved(&[0.1, 0.9], &[0.3, 0.7], 1), &[0.15, 0.85]);
    // Fall 0.15 → 0: ÷1.5 allows 0.05, a third of the way.
    near(&moved(&[0.15, 0.85], &[0.0, 1.0], 1), &[0.10, 0.90]);
    near(&moved(&[0.5, 0.5], &[0.52, 0.48], 1), &[0.52, 0.48]);
    near(&moved(&[0.5, 0.5], &[0.9, 0.1], 0), &[0.5, 0.5]);
}

#[test]
fn a_newcomer_starts_at_its_target_and_takes_from_all() {
    near(
        &move_shares(&[Some(0.6), Some(0.4), None], &[0.3, 0.2, 0.5], Span::ZERO),
        &[0.3, 0.2, 0.5],
    );
    near(&move_shares(&[None, None], &[0.3, 0.7], Span::ZERO), &[0.3, 0.7]);
    // One left: the others stand at 0.6 and 0.2 of 0.8.
    near(&move_shares(&[Some(0.6), Some(0.2)], &[0.75, 0.25], Span::ZERO), &[0.75, 0.25]);
}

#[test]
fn weights_are_relative_to_the_largest_and_at_least_one() {
    let plain = |shares: &[f64]| weights(shares).iter().map(|w| w.get()).collect::<Vec<_>>();
    assert_eq!(plain(&[0.6, 0.3, 0.1]), [10_000, 5_000, 1_667]);
    assert_eq!(plain(&[1.0, 0.0]), [10_000, 1]);
    assert_eq!(plain(&[0.0, 0.0]), [10_000, 10_000]);
}

#[test]
fn small_changes_are_not_published() {
    let check = |old, new, expected| {
        let kept = with_dead_band(Some(Weight::clamped(old)), Weight::clamped(new));
        assert_eq!(kept.get(), expected, "{old} → {new}");
    };
    check(1_000, 1_050, 1_000);
    check(1_000, 1_051, 1_051);
    check(1_000, 950, 1_000);
    check(1_000, 949, 949);
    check(1, 2, 2);
    assert_eq!(with_dead_band(None, Weight::clamped(7)).get(), 7);
}
