use super::*;

fn read(runner: Runner, text: &str, fine: bool) -> Counts {
    let mut reader = Reader::new(runner).without(&["fresh"]);
    for line in text.lines() {
        reader.line(line);
    }
    reader.end("the stage", fine)
}

fn names(list: &[Named]) -> Vec<&str> {
    list.iter().map(|it| it.name.as_str()).collect()
}

const NEXTEST: &str = "\
   Compiling tidegate-strict v0.1.0
    Finished `test` profile in 3.1s
────────────
 Nextest run ID 5c3 with nextest profile: default
    Starting 4 tests across 2 binaries
        PASS [   0.004s] (1/4) tidegate-strict::reading a_fact
  stdout ───
    test a_fact ... ok

        FAIL [   0.010s] (2/4) tidegate-policy pick::broken
  stderr ───
    thread panicked at src/pick.rs:3
    left: 1

        SLOW [> 60.000s] (─────) tidegate-tests::steer slow_one
     SIGABRT [   1.010s] (3/4) tidegate-tests::steer slow_one
        PASS [   0.010s] (4/4) tidegate-tests::steer without_envoy
  stdout ───
    SKIPPED: Envoy is not at .tools/venv/bin/envoy
    SKIPPED: said twice
────────────
     Summary [   1.1s] 4 tests run: 2 passed, 2 failed, 9 skipped
";

#[test]
fn nextest_counts_passes_failures_crashes_and_skips() {
    let counts = read(Runner::Nextest, NEXTEST, false);
    assert_eq!(counts.line(), "1 passed, 2 failed, 1 skipped");
    assert_eq!(
        names(&counts.failed),
        ["tidegate-policy pick::broken", "tidegate-tests::steer slow_one"]
    );
    assert!(counts.failed[0].text.contains("left: 1"));
    assert_eq!(counts.skipped[0].text, "Envoy is not at .tools/venv/bin/envoy");
}

const LIBTEST: &str = "\
     Running unittests src/lib.rs (target/debug/deps/tidegate_strict-0123)
running 3 tests
test a_fact ... ok
test b_fact ... FAILED
test c_fact ... ignored, slow

successes:

---- a_fact stdout ----
SKIPPED: no Node

failures:

---- b_fact stdout ----
left: 1

failures:
    b_fact

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out
     Running tests/fresh.rs (target/debug/deps/fresh-0123)
test generated ... ok
test result: ok. 1 passed; 0 failed; 0 ignored
   Doc-tests tidegate_strict
test proto/strict/src/lib.rs - (line 3) ... ok
test result: ok. 1 passed; 0 failed; 0 ignored
";

#[test]
fn libtest_counts_each_test_once_and_leaves_named_binaries_out() {
    let counts = read(Runner::Libtest, LIBTEST, false);
    // Passed: the doc test alone. Skipped: a_fact by its own word, c_fact as ignored.
    assert_eq!(counts.line(), "1 passed, 1 failed, 2 skipped");
    assert_eq!(names(&counts.failed), ["tidegate_strict b_fact"]);
    assert!(counts.failed[0].text.contains("left: 1"));
}

#[test]
fn build_error_is_a_failure_with_its_text() {
    let counts = read(Runner::Nextest, "error[E0425]: cannot find value\n", false);
    assert_eq!(counts.line(), "0 passed, 1 failed, 0 skipped");
    assert!(counts.failed[0].text.contains("E0425"));
}

#[test]
fn a_run_without_tests_counts_nothing() {
    assert_eq!(
        read(Runner::Libtest, "running 0 tests\n", true).line(),
        "0 passed, 0 failed, 0 skipped"
    );
}

#[test]
fn only_the_end_of_a_long_output_is_kept() {
    let mut text = String::from("        FAIL [   0.010s] a::b c\n");
    for n in 0..100 {
        text.push_str(&format!("    line {n}\n"));
    }
    let counts = read(Runner::Nextest, &text, false);
    let kept = &counts.failed[0].text;
    // 40 of 100 lines: 60..=99.
    assert!(!kept.contains("line 59\n") && kept.contains("line 60\n") && kept.contains("line 99"));
}
