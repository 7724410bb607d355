use super::*;
use crate::sample::{GpuState, Utilization};

fn identity(index: u32, uuid: &str) -> Identity {
    Identity { uuid: uuid.into(), index, ..Identity::default() }
}

fn limits() -> AgeLimits {
    AgeLimits::of_periods(Duration::from_millis(500), Duration::from_secs(10))
}

fn states(board: &Board) -> Vec<(String, GpuState)> {
    let gpus = board.gpus(Instant::now(), limits());
    gpus.into_iter().map(|g| (g.identity.uuid, g.state)).collect()
}

fn board(uuids: &[&str]) -> Board {
    let board = Board::default();
    for (index, uuid) in (0..).zip(uuids) {
        board.attached(&identity(index, uuid));
    }
    board
}

fn load(percent: u32) -> Fast {
    let load = Utilization { sm_percent: Some(percent), ..Utilization::default() };
    Fast { utilization: Some(load), ..Fast::default() }
}

#[test]
fn a_lost_gpu_keeps_its_uuid() {
    let board = board(&["a", "b"]);
    board.answer(1, Answer::Lost("x".into()));
    assert_eq!(states(&board), [("a".into(), GpuState::Ok), ("b".into(), GpuState::Lost)]);
}

#[test]
fn a_gpu_never_opened_is_named_by_its_index_until_it_answers() {
    let board = Board::default();
    board.answer(3, Answer::Closed("x".into()));
    assert_eq!(states(&board), [("index-3".into(), GpuState::Unknown)]);
    board.attached(&identity(3, "d"));
    assert_eq!(states(&board), [("d".into(), GpuState::Ok)]);
}

#[test]
fn a_gpu_gone_from_the_list_is_missing_and_returns() {
    let board = board(&["a", "b"]);
    board.settle(&BTreeSet::from(["a".into()]));
    assert_eq!(states(&board)[1], ("b".into(), GpuState::Missing));
    board.attached(&identity(1, "b"));
    board.settle(&BTreeSet::from(["a".into(), "b".into()]));
    assert_eq!(states(&board)[1], ("b".into(), GpuState::Ok));
}

#[test]
fn renumbered_gpus_stay_who_they_are() {
    let board = board(&["a", "b"]);
    board.attached(&identity(0, "b"));
    board.attached(&identity(1, "a"));
    board.settle(&BTreeSet::from(["a".into(), "b".into()]));
    assert_eq!(states(&board), [("b".into(), GpuState::Ok), ("a".into(), GpuState::Ok)]);
}

#[test]
fn hung_wins_over_lost_and_slow_stays_for_three_good_rounds() {
    let board = board(&["a"]);
    board.answer(0, Answer::Lost("x".into()));
    board.hung(0, "call".into());
    assert_eq!(states(&board)[0].1, GpuState::Hung);
    board.returned(0);
    for _ in 0..2 {
        board.fast("a", Instant::now(), load(1), Vec::new());
        assert_eq!(states(&board)[0].1, GpuState::Slow);
    }
    board.fast("a", Instant::now(), load(1), Vec::new());
    assert_eq!(states(&board)[0].1, GpuState::Ok);
}

#[test]
fn a_group_is_told_until_three_periods_old_and_then_left_out() {
    let board = board(&["a"]);
    let then = Instant::now();
    board.fast("a", then, load(0), Vec::new());
    // 3 × 500 ms is below the floor of 2 s.
    let at = |ms| board.gpus(then + Duration::from_millis(ms), limits())[0].utilization;
    assert_eq!(at(2_000).map(|u| (u.age_ms, u.value.sm_percent)), Some((2_000, Some(0))));
    assert_eq!(at(2_001), None);
    let slow = AgeLimits::of_periods(Duration::from_secs(1), Duration::from_secs(10));
    assert_eq!(slow.fast, Duration::from_secs(3));
}

#[test]
fn the_newest_sixteen_events_are_kept_and_all_are_counted() {
    let board = board(&["a"]);
    for _ in 0..10_000 {
        board.xid(0, 45, Instant::now());
    }
    board.xid(0, 79, Instant::now());
    let gpu = &board.gpus(Instant::now(), limits())[0];
    assert_eq!((gpu.xids.len(), gpu.xids[0].code, gpu.xids[0].event_id), (XIDS_MAX, 79, 10_001));
    assert_eq!(board.xid_totals(), [("a".into(), 45, 10_000), ("a".into(), 79, 1)]);
}

#[test]
fn the_same_code_twice_is_two_events() {
    let board = board(&["a"]);
    board.xid(0, 31, Instant::now());
    board.xid(0, 31, Instant::now());
    let ids: Vec<u64> =
        board.gpus(Instant::now(), limits())[0].xids.iter().map(|x| x.event_id).collect();
    assert_eq!(ids, [2, 1]);
}

#[test]
fn remembered_gpus_are_bounded_and_missing_ones_make_room() {
    let names: Vec<String> = (0..64).map(|index| format!("u{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let board = board(&names);
    board.answer(64, Answer::Closed("x".into()));
    assert_eq!(states(&board).len(), RECORDS_MAX);
    board.settle(&names.iter().skip(1).map(ToString::to_string).collect());
    board.attached(&identity(64, "late"));
    let states = states(&board);
    assert_eq!(states.len(), RECORDS_MAX);
    assert!(states.iter().any(|(uuid, _)| uuid == "late"));
    assert!(!states.iter().any(|(uuid, _)| uuid == "u0"));
}

#[test]
fn a_hung_driver_overrides_what_the_driver_said() {
    let board = Board::default();
    board.set_driver(Driver { status: DriverStatus::Ok, ..Driver::default() });
    board.set_driver_hung(Some("nvmlInit_v2".into()));
    assert_eq!(board.driver().status, DriverStatus::Hung);
    board.set_driver_hung(None);
    assert_eq!(board.driver().status, DriverStatus::Ok);
}
