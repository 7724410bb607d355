use alloc::vec;

use super::*;

#[test]
fn names_of_the_driver_find_their_type() {
    let check = |name, expected| assert_eq!(of_type(name, &[]), expected, "{name}");
    check("NVIDIA A100-SXM4-80GB", Some(1.0));
    check("NVIDIA A100-SXM4-40GB", Some(0.85));
    check("NVIDIA A100-PCIE-40GB", Some(0.8));
    check("NVIDIA H100 80GB HBM3", Some(1.8));
    check("NVIDIA H100 PCIe", Some(1.3));
    check("NVIDIA H200", Some(2.3));
    check("NVIDIA GH200 480GB", Some(2.4));
    check("Tesla V100-SXM2-32GB", Some(0.45));
    check("NVIDIA L4", Some(0.25));
    check("NVIDIA L40", Some(0.5));
    check("NVIDIA L40S", Some(0.6));
    check("NVIDIA A10G", Some(0.35));
    check("NVIDIA A10", Some(0.35));
    check("NVIDIA GeForce RTX 4090", Some(0.6));
    check("Tesla T4", Some(0.15));
    check("NVIDIA T400", None);
    check("Something of tomorrow", None);
    check("", None);
}

#[test]
fn the_operators_table_comes_first_and_is_bounded() {
    let set = |name: &str, capacity| vec![TypeCapacity { name_contains: name.into(), capacity }];
    assert_eq!(of_type("NVIDIA L4", &set("l4", 0.45)), Some(0.45));
    assert_eq!(of_type("NVIDIA X1", &set("X1", 3.0)), Some(3.0));
    assert_eq!(of_type("NVIDIA L4", &set("", 9.0)), Some(0.25));
    assert_eq!(of_type("NVIDIA L4", &set("l4", f64::NAN)), Some(0.01));
    assert_eq!(of_type("NVIDIA L4", &set("l4", f64::INFINITY)), Some(1_000.0));
    assert_eq!(of_type("NVIDIA L4", &set("l4", -1.0)), Some(0.01));
}

#[test]
fn unknown_types_are_worth_the_median_of_the_known() {
    assert_eq!(fill_unknown(&[Some(1.0), None, Some(0.4)]), [1.0, 0.7, 0.4]);
    assert_eq!(fill_unknown(&[None, None]), [1.0, 1.0]);
}

#[test]
fn only_the_saturated_and_healthy_teach() {
    // 0.8·10 = 8.
    assert!(!is_teaching(Some(7), Some(10), 1.0));
    assert!(is_teaching(Some(8), Some(10), 1.0));
    assert!(is_teaching(Some(8), Some(10), 0.9));
    assert!(!is_teaching(Some(8), Some(10), 0.89));
    assert!(!is_teaching(None, Some(10), 1.0));
    assert!(!is_teaching(Some(8), None, 1.0));
    assert!(!is_teaching(Some(8), Some(0), 1.0));
}

fn taught(tokens: f64, secs: u64) -> Option<Learned> {
    let mut learned = Learned::default();
    for _ in 0..secs {
        learned.tokens.observe(tokens, Span::secs(1));
    }
    Some(learned)
}

#[test]
fn the_average_is_unbiased_from_the_first_second() {
    let learned = taught(500.0, 1).unwrap();
    assert!((learned.tokens.rate().unwrap() - 500.0).abs() < 1e-6);
    let learned = taught(500.0, 600).unwrap();
    assert!((learned.tokens.confidence - 0.632_121).abs() < 1e-6); // 1 − e^-1 after one τ
}

#[test]
fn learning_moves_capacity_between_those_who_learned() {
    // Same type; rates 3000 and 1000 sum to 2·1.0 → 1.5 and 0.5; confidence 0.632.
    let all = combine(
        &[1.0, 1.0, 1.0],
        &[taught(3_000.0, 600), taught(1_000.0, 600), Some(Learned::default())],
    );
    assert!((all[0].learned.unwrap() - 1.5).abs() < 1e-6);
    assert!((all[1].learned.unwrap() - 0.5).abs() < 1e-6);
    assert!((all[0].used - 1.316_06).abs() < 1e-4); // 1·0.36788 + 1.5·0.63212
    assert_eq!((all[2].learned, all[2].used), (None, 1.0));
}

#[test]
fn a_single_learner_has_nothing_to_compare_with() {
    let all = combine(&[1.0, 0.45], &[taught(9_999.0, 600), Some(Learned::default())]);
    assert!((all[0].used - 1.0).abs() < 1e-9);
}

#[test]
fn a_lying_report_gains_twice_its_type_at_most() {
    let all = combine(
        &[1.0; 8],
        &[
            taught(1e9, 6_000),
            taught(1_000.0, 6_000),
            taught(1_000.0, 6_000),
            taught(1_000.0, 6_000),
            taught(1_000.0, 6_000),
            taught(1_000.0, 6_000),
            taught(1_000.0, 6_000),
            taught(1_000.0, 6_000),
        ],
    );
    assert!(all[0].used <= 2.0 && all[0].used > 1.99);
    assert!(all[1].used >= 0.25);
}

#[test]
fn fixed_capacities_do_not_learn() {
    let all = combine(&[3.0, 1.0], &[None, taught(100.0, 600)]);
    assert_eq!((all[0].used, all[0].learned), (3.0, None));
}

#[test]
fn nonsense_teaches_nothing() {
    let mut learner = Learner::default();
    for rate in [f64::NAN, f64::INFINITY, -1.0] {
        learner.observe(rate, Span::secs(60));
    }
    assert_eq!(learner.rate(), None);
    learner.observe(f64::MAX, Span::secs(60));
    assert!(learner.rate().unwrap().is_finite());
}
