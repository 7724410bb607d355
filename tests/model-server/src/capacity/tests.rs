use super::*;

fn limits(slots: usize, beta: f64) -> Limits {
    Limits { slots, beta, kv_tokens: 1_000 }
}

/// `work_ms` in one piece, holding one token of prompt and one of output.
fn job(work_ms: f64) -> Job {
    Job { prefill_ms: 0.0, decode_ms: work_ms, prompt_tokens: 1, output_tokens: 1, pieces: 1 }
}

/// Submits each `(at_ms, job)` and gives the time at which each finished.
fn finishes(limits: Limits, speed: f64, arrivals: &[(f64, Job)]) -> Vec<f64> {
    let mut capacity = Capacity::new(limits, speed);
    let mut events = Vec::new();
    for &(at_ms, job) in arrivals {
        capacity.submit(at_ms, job, &mut events);
    }
    capacity.advance(1e9, &mut events);
    let mut finished = vec![f64::NAN; arrivals.len()];
    for event in events.iter().filter(|event| event.step == Step::Finished) {
        finished[event.id as usize] = event.at_ms;
    }
    finished
}

fn check(limits: Limits, speed: f64, arrivals: &[(f64, f64)], expected: &[f64]) {
    let arrivals: Vec<_> = arrivals.iter().map(|&(at_ms, work_ms)| (at_ms, job(work_ms))).collect();
    let finished = finishes(limits, speed, &arrivals);
    for (got, want) in finished.iter().zip(expected) {
        assert!((got - want).abs() < 1e-6, "{finished:?} is not {expected:?}");
    }
}

#[test]
fn work_is_divided_by_speed() {
    check(limits(1, 0.0), 1.0, &[(0.0, 100.0)], &[100.0]);
    check(limits(1, 0.0), 0.5, &[(0.0, 100.0)], &[200.0]);
    check(limits(1, 0.0), 2.0, &[(10.0, 100.0)], &[60.0]);
}

#[test]
fn free_batching_lets_slots_run_side_by_side() {
    // Two slots: the third waits for the one that ends at 50 and then takes 30.
    check(limits(2, 0.0), 1.0, &[(0.0, 100.0), (0.0, 50.0), (0.0, 30.0)], &[100.0, 50.0, 80.0]);
}

#[test]
fn waiting_is_in_order_of_arrival() {
    // One slot: 100, then 100 + 10, then 110 + 20, though the last is not the longest.
    check(limits(1, 0.0), 1.0, &[(0.0, 100.0), (1.0, 10.0), (2.0, 20.0)], &[100.0, 110.0, 130.0]);
}

#[test]
fn beta_one_shares_the_speed_of_one() {
    // Both at half rate until the short one has its 50 at 100 ms; the long one then has 50 of 100
    // left and runs alone: 150.
    check(limits(2, 1.0), 1.0, &[(0.0, 100.0), (0.0, 50.0)], &[150.0, 100.0]);
}

#[test]
fn an_arrival_slows_the_others_from_then_on() {
    // Alone until 40 (40 of 100 done), then at rate 1 / 1.5 = 2/3: 60 left take 90, so 130. The
    // second has 60 at 130, then runs alone: 40 left, so 170.
    check(limits(4, 0.5), 1.0, &[(0.0, 100.0), (40.0, 100.0)], &[130.0, 170.0]);
}

#[test]
fn a_change_of_speed_counts_from_its_moment() {
    let mut capacity = Capacity::new(limits(1, 0.0), 1.0);
    let mut events = Vec::new();
    capacity.submit(0.0, job(100.0), &mut events);
    capacity.set_speed(50.0, 0.5, &mut events);
    // 50 of work left at half speed: 50 + 100.
    assert_eq!(capacity.next_at_ms(), Some(150.0));
    capacity.set_speed(60.0, 0.0, &mut events);
    assert_eq!(capacity.next_at_ms(), None, "a stopped GPU has no next event");
    capacity.set_speed(1_000.0, 1.0, &mut events);
    // 50 - 10 * 0.5 = 45 left.
    assert_eq!(capacity.next_at_ms(), Some(1_045.0));
}

#[test]
fn a_cancelled_request_frees_its_slot_and_its_tokens() {
    let mut capacity = Capacity::new(limits(1, 0.0), 1.0);
    let mut events = Vec::new();
    let first = capacity.submit(0.0, job(100.0), &mut events);
    let second = capacity.submit(0.0, job(100.0), &mut events);
    let third = capacity.submit(0.0, job(10.0), &mut events);
    capacity.cancel(30.0, second, &mut events);
    assert_eq!((capacity.running(), capacity.waiting()), (1, 1));
    capacity.cancel(40.0, first, &mut events);
    assert_eq!(capacity.next_at_ms(), Some(50.0), "the third starts when the first leaves");
    capacity.advance(50.0, &mut events);
    capacity.cancel(60.0, third, &mut events);
    assert_eq!((capacity.running(), capacity.waiting(), capacity.kv_reserved), (0, 0, 0));
}

#[test]
fn the_first_piece_is_one_token_and_the_last_ends_it() {
    let job =
        Job { prefill_ms: 20.0, decode_ms: 90.0, prompt_tokens: 7, output_tokens: 9, pieces: 3 };
    // Tokens 1, 1 + 8 * 1/2 = 5, 9; each token costs 90 / 9 = 10: marks at 20 + 10, 50, 90.
    let mut capacity = Capacity::new(limits(1, 0.0), 1.0);
    let mut events = Vec::new();
    capacity.submit(0.0, job, &mut events);
    capacity.advance(1_000.0, &mut events);
    let steps: Vec<_> = events.iter().map(|event| (event.at_ms, event.step)).collect();
    assert_eq!(
        steps,
        [
            (0.0, Step::Admitted),
            (30.0, Step::Piece(1)),
            (70.0, Step::Piece(2)),
            (110.0, Step::Piece(3)),
            (110.0, Step::Finished)
        ]
    );
}

#[test]
fn kv_use_grows_with_the_tokens_made() {
    let job = Job {
        prefill_ms: 0.0,
        decode_ms: 100.0,
        prompt_tokens: 100,
        output_tokens: 200,
        pieces: 1,
    };
    let mut capacity = Capacity::new(limits(4, 0.0), 1.0);
    let mut events = Vec::new();
    capacity.submit(0.0, job, &mut events);
    assert_eq!(capacity.kv_ratio(), 0.1, "100 tokens of prompt in 1,000");
    capacity.advance(50.0, &mut events);
    assert_eq!(capacity.kv_ratio(), 0.2, "100 + half of 200");
    capacity.advance(100.0, &mut events);
    assert_eq!(capacity.kv_ratio(), 0.0);
}

#[test]
fn a_full_kv_cache_makes_the_next_wait() {
    let sized = |tokens| Job { prompt_tokens: tokens, ..job(100.0) };
    // 1,000 tokens: 500 + 1 and 498 + 1 fill it exactly, one more does not fit.
    let exact = finishes(limits(4, 0.0), 1.0, &[(0.0, sized(500)), (0.0, sized(498))]);
    assert_eq!(exact, [100.0, 100.0]);
    let over = finishes(limits(4, 0.0), 1.0, &[(0.0, sized(500)), (0.0, sized(499))]);
    assert_eq!(over, [100.0, 200.0]);
    let giant = finishes(limits(4, 0.0), 1.0, &[(0.0, sized(5_000)), (0.0, sized(1))]);
    assert_eq!(giant, [100.0, 200.0], "larger than the cache runs alone");
}

#[test]
fn busy_slots_are_integrated_over_time() {
    let mut capacity = Capacity::new(limits(4, 0.0), 1.0);
    let mut events = Vec::new();
    capacity.submit(0.0, job(100.0), &mut events);
    capacity.submit(50.0, job(100.0), &mut events);
    capacity.advance(1_000.0, &mut events);
    // 50 alone + 50 together + 50 alone = 50 + 100 + 50.
    assert_eq!(capacity.busy_slot_ms(), 200.0);
}

#[test]
fn a_slow_poll_changes_nothing() {
    let run = |step_ms: f64| {
        let mut capacity = Capacity::new(limits(3, 0.3), 0.7);
        let mut events = Vec::new();
        for i in 0..50 {
            let at_ms = f64::from(i) * 11.0;
            let mut t = (at_ms - 11.0).max(0.0);
            while t < at_ms {
                capacity.advance(t, &mut events);
                t += step_ms;
            }
            capacity.submit(at_ms, job(20.0 + f64::from(i % 7)), &mut events);
        }
        capacity.advance(1e6, &mut events);
        events
            .iter()
            .map(|event| (event.id, event.step, (event.at_ms * 1e3).round()))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(0.5).len(), 150);
    let (fine, coarse) = (run(0.5), run(11.0));
    assert!(
        fine.iter().zip(&coarse).all(|(a, b)| a.0 == b.0 && a.1 == b.1 && (a.2 - b.2).abs() <= 1.0)
    );
}
