use super::*;

fn min_max(values: &[f64], direction: Direction) -> Vec<f64> {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let range = PhysicalRange { low, high, direction };
    values.iter().map(|v| range.normalise(*v).unwrap()).collect()
}

fn near(actual: f64, expected: f64, within: f64) {
    assert!((actual - expected).abs() <= within, "{actual} is not {expected} ± {within}");
}

/// The known answer of the classic method, ranges being the minimum and maximum of the moment.
#[test]
fn classic_test_vector() {
    let columns = [
        min_max(&[20.0, 85.0, 60.0, 40.0], Direction::Cost),
        min_max(&[60.0, 12.0, 30.0, 45.0], Direction::Benefit),
        min_max(&[45.0, 78.0, 66.0, 55.0], Direction::Cost),
        min_max(&[600.0; 4], Direction::Benefit),
    ];
    let weights = entropy_weights(&columns);
    for (actual, expected) in weights.iter().zip([0.3302, 0.3332, 0.3365, 0.0]) {
        near(*actual, expected, 5e-5);
    }
    for (i, expected) in [1.0, 0.002, 0.3756, 0.6929].into_iter().enumerate() {
        let score: f64 = columns.iter().zip(&weights).map(|(c, w)| c[i] * w).sum();
        near(score, expected, 5e-5);
    }
}

/// Seven cards at 10.0 GB/s, one at 10.1: noise, not news.
#[test]
fn one_outlier_owns_the_classic_method_but_not_the_physical_range() {
    let bandwidth = [10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.1];
    let use_percent = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0];
    let classic = entropy_weights(&[
        min_max(&bandwidth, Direction::Benefit),
        min_max(&use_percent, Direction::Cost),
    ]);
    assert!(classic[0] > 0.85, "{classic:?}");

    let link = PhysicalRange { low: 0.0, high: 32.0, direction: Direction::Benefit };
    let percent = PhysicalRange { low: 0.0, high: 100.0, direction: Direction::Cost };
    let column = |range: PhysicalRange, values: &[f64]| {
        values.iter().map(|v| range.normalise(*v).unwrap()).collect::<Vec<_>>()
    };
    let fixed = entropy_weights(&[column(link, &bandwidth), column(percent, &use_percent)]);
    assert_eq!(fixed, [0.0, 1.0]);
}

#[test]
fn normalising_clamps_and_turns_costs_round() {
    let cost = PhysicalRange { low: 30.0, high: 90.0, direction: Direction::Cost };
    let check = |x, expected: f64| near(cost.normalise(x).unwrap(), expected, 1e-12);
    check(30.0, 1.0);
    check(60.0, 0.501); // 0.002 + 0.998·0.5
    check(90.0, 0.002);
    check(-5.0, 1.0);
    check(1e300, 0.002);
    check(f64::INFINITY, 0.002);
    check(f64::NEG_INFINITY, 1.0);
    assert_eq!(cost.normalise(f64::NAN), None);
}

#[test]
fn a_range_without_width_says_nothing() {
    for (low, high) in [(5.0, 5.0), (5.0, 4.0), (f64::NAN, 1.0), (0.0, f64::INFINITY)] {
        let range = PhysicalRange { low, high, direction: Direction::Benefit };
        assert_eq!(range.normalise(5.0), Some(0.5));
    }
}

#[test]
fn divergence_of_equal_is_zero_and_of_one_owner_is_one() {
    assert_eq!(divergence(&[0.3, 0.3, 0.3]), 0.0);
    assert_eq!(divergence(&[1.0]), 0.0);
    assert_eq!(divergence(&[]), 0.0);
    assert_eq!(divergence(&[0.0, 0.0]), 0.0);
    assert_eq!(divergence(&[1.0, 0.0, 0.0]), 1.0);
    // p = 0.75, 0.25: H = 0.5623, /ln 2 = 0.8113.
    near(divergence(&[0.75, 0.25]), 0.1887, 5e-5);
}

fn row(cells: &[(Indicator, f64)]) -> Row {
    let mut out: Row = [None; Indicator::COUNT];
    for (indicator, z) in cells {
        let at = Indicator::ALL.iter().position(|i| i == indicator).unwrap();
        out[at] = Some(*z);
    }
    out
}

fn weight(evaluation: &Evaluation, indicator: Indicator) -> f64 {
    evaluation.weights[Indicator::ALL.iter().position(|i| *i == indicator).unwrap()]
}

fn plain(rows: &[Row]) -> Evaluation {
    evaluate(rows, &Prior::default(), |_, _| None)
}

#[test]
fn where_all_is_constant_the_prior_rules() {
    let same = row(&[
        (Indicator::SmUse, 0.4),
        (Indicator::MemoryFree, 0.4),
        (Indicator::Temperature, 0.4),
        (Indicator::MemoryBandwidth, 0.4),
    ]);
    let evaluation = plain(&[same; 4]);
    near(weight(&evaluation, Indicator::SmUse), 0.35, 1e-12);
    near(weight(&evaluation, Indicator::MemoryFree), 0.30, 1e-12);
    near(weight(&evaluation, Indicator::Temperature), 0.15, 1e-12);
    near(weight(&evaluation, Indicator::MemoryBandwidth), 0.20, 1e-12);
    // All weights together are 1, so each score is the one value.
    assert!(evaluation.rows.iter().all(|r| (score(&evaluation.weights, r) - 0.4).abs() < 1e-12));
}

#[test]
fn few_rows_trust_the_prior_more() {
    let rows = |n: usize| -> Vec<Row> {
        (0..n)
            .map(|i| {
                let z = if i == 0 { 0.1 } else { 1.0 };
                row(&[(Indicator::SmUse, z), (Indicator::MemoryFree, 0.5)])
            })
            .collect()
    };
    // Prior of two columns: 0.35/0.65 = 0.53846 and 0.46154. All votes go to the first.
    // 3 rows, λ 0.2: 0.2 + 0.8·0.53846 = 0.63077 → 0.5 by the bound, other 0.8·0.46154 = 0.36923.
    near(weight(&plain(&rows(3)), Indicator::SmUse), 0.5 / 0.869_231, 1e-5);
    // 4 rows, λ 0.5: 0.76923 → 0.5, other 0.5·0.46154 = 0.23077.
    near(weight(&plain(&rows(4)), Indicator::SmUse), 0.5 / 0.730_769, 1e-5);
}

#[test]
fn a_group_has_one_vote() {
    // Utilisation, power and temperature say the same thing; memory says another as strongly.
    let rows: Vec<Row> = [0.2, 0.4, 0.6, 0.8]
        .into_iter()
        .zip([0.8, 0.2, 0.6, 0.4])
        .map(|(load, memory)| {
            row(&[
                (Indicator::SmUse, load),
                (Indicator::PowerHeadroom, load),
                (Indicator::Temperature, load),
                (Indicator::MemoryFree, memory),
            ])
        })
        .collect();
    let mut divergences = [0.0; Indicator::COUNT];
    for (j, slot) in divergences.iter_mut().enumerate() {
        let column: Vec<f64> = rows.iter().filter_map(|r| r[j]).collect();
        *slot = divergence(&column);
    }
    let votes = normalised(grouped(&divergences));
    near(votes[0] + votes[1] + votes[2], 0.5, 1e-12);
    near(votes[3], 0.5, 1e-12);
}

#[test]
fn a_column_that_most_lack_is_dropped() {
    let full = row(&[(Indicator::SmUse, 0.5), (Indicator::KvUse, 0.1)]);
    let without = row(&[(Indicator::SmUse, 0.9)]);
    // Known by 2 of 4: half is enough. By 1 of 4: dropped.
    assert!(weight(&plain(&[full, full, without, without]), Indicator::KvUse) > 0.0);
    assert_eq!(weight(&plain(&[full, without, without, without]), Indicator::KvUse), 0.0);
}

#[test]
fn missing_cells_take_the_given_value_then_the_columns_median() {
    let rows = [
        row(&[(Indicator::SmUse, 0.2), (Indicator::MemoryFree, 0.5)]),
        row(&[(Indicator::SmUse, 0.6), (Indicator::MemoryFree, 0.5)]),
        row(&[(Indicator::MemoryFree, 0.4)]),
    ];
    assert_eq!(plain(&rows).rows[2][0], 0.4); // (0.2+0.6)/2
    let given = evaluate(&rows, &Prior::default(), |row, indicator| {
        (row == 2 && indicator == Indicator::SmUse).then_some(0.3)
    });
    assert_eq!(given.rows[2][0], 0.3);
}

#[test]
fn nothing_known_has_no_weights() {
    assert_eq!(plain(&[[None; Indicator::COUNT]; 3]).weights, [0.0; Indicator::COUNT]);
    assert_eq!(plain(&[]).weights, [0.0; Indicator::COUNT]);
}

#[test]
fn a_prior_that_names_no_column_treats_them_alike() {
    let rows = [row(&[(Indicator::Queue, 0.5), (Indicator::KvUse, 0.5)]); 2];
    near(weight(&plain(&rows), Indicator::Queue), 0.5, 1e-12);
    let odd = Prior([f64::NAN; Indicator::COUNT]);
    near(evaluate(&rows, &odd, |_, _| None).weights.iter().sum(), 1.0, 1e-12);
}

#[test]
fn names_are_distinct() {
    let mut names: Vec<_> = Indicator::ALL.iter().map(|i| i.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Indicator::COUNT);
}
