//! `bench pick`: what one decision of the default policy costs, natively, next to two random choices by own counts, which
//! is the least that any balancing proxy does.
//!
//! The table is that of a fleet under load: two GPU types, slots known, loads around 0.85 that move with every pick. Both
//! arms take turns in batches on the same table; the figure is the median batch, which a busy machine moves little.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

use tidegate_policy::chance::Chance;
use tidegate_policy::pick::{Demand, Method, Picker, Reported, Row, Slots, Table, pick};

use crate::form::{self, Aim, Bound, Findings};
use crate::quantile::median;

const SIZES: [usize; 4] = [8, 64, 512, 4_096];
const DEFAULT_SECONDS: u64 = 4;
const BATCH: u32 = 256;
/// First choice and two fallbacks.
const WANT: usize = 3;
const SLOTS: f64 = 8.0;

pub fn run(seconds: Option<u64>) -> Findings {
    let each = Duration::from_secs(seconds.unwrap_or(DEFAULT_SECONDS)) / SIZES.len() as u32;
    let measured: Vec<(usize, Costs)> =
        SIZES.into_iter().map(|size| (size, measure(size, each))).collect();
    let at_64 =
        measured.iter().find(|(size, _)| *size == 64).and_then(|(_, costs)| costs.li_slots_us);
    Findings {
        bench: "pick",
        rows: measured
            .iter()
            .map(|(size, costs)| {
                form::Row::new()
                    .with("endpoints", *size)
                    .with("li_slots_us", costs.li_slots_us)
                    .with("two_choices_us", costs.two_choices_us)
                    .with("ratio", ratio(costs.li_slots_us, costs.two_choices_us))
                    .with("decisions", costs.decisions)
            })
            .collect(),
        aims: vec![Aim::new("li_slots at 64 endpoints, us a decision", at_64, Bound::AtMost, 3.0)],
    }
}

struct Costs {
    li_slots_us: Option<f64>,
    two_choices_us: Option<f64>,
    decisions: u64,
}

fn measure(size: usize, span: Duration) -> Costs {
    let mut chance = Chance::seeded(size as u64);
    let mut table = fleet(size, &mut chance);
    let mut picker = Picker::new();
    // 0.85 of the capacity of 16 proxies for half a second, 1/16 of it our own.
    let unseen = 0.85 * size as f64 * SLOTS * 0.725 * 0.5 * 15.0 / 16.0;
    let method = Method::LiSlots(Demand { unseen, departed: unseen / 2.0, slots: Slots::Used });
    let mut open = VecDeque::new();
    let (mut li_slots, mut two_choices) = (Vec::new(), Vec::new());
    let end = Instant::now() + span;
    while Instant::now() < end {
        li_slots.push(batch_us(&mut table, &mut open, |table| {
            pick(&mut picker, method, table, &mut chance, WANT).order.first().copied()
        }));
        let mut other = Chance::seeded(li_slots.len() as u64);
        two_choices.push(batch_us(&mut table, &mut open, |table| Some(two_of(table, &mut other))));
    }
    let decisions = li_slots.len() as u64 * u64::from(BATCH);
    Costs { li_slots_us: median(&li_slots), two_choices_us: median(&two_choices), decisions }
}

/// Mean time of a decision over a batch; each takes a place and ends the oldest, so that loads move.
fn batch_us(
    table: &mut Table,
    open: &mut VecDeque<usize>,
    mut decide: impl FnMut(&mut Table) -> Option<usize>,
) -> f64 {
    let in_flight = table.rows().len();
    let start = Instant::now();
    for _ in 0..BATCH {
        let Some(row) = black_box(decide(black_box(table))) else { continue };
        open.push_back(row);
        add(table, row, 1.0);
        if open.len() > in_flight
            && let Some(ended) = open.pop_front()
        {
            add(table, ended, -1.0);
        }
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH)
}

fn add(table: &mut Table, row: usize, change: f64) {
    if let Some(row) = table.row_mut(row) {
        row.own += change;
    }
}

fn two_of(table: &Table, chance: &mut Chance) -> usize {
    let rows = table.rows();
    let [a, b] = [(); 2].map(|()| chance.below(rows.len() as u64) as usize);
    if rows[b].own < rows[a].own { b } else { a }
}

/// Half fast, half slow, four GPUs a node, each with five to nine requests of others.
fn fleet(size: usize, chance: &mut Chance) -> Table {
    let rows = (0..size)
        .map(|index| Row {
            slots: Some(SLOTS),
            reported: Reported::Fresh { others: 5.0 + chance.below(5) as f64 },
            node: 1 + index as u32 / 4,
            ..Row::idle(if index % 2 == 0 { 1.0 } else { 0.45 })
        })
        .collect();
    Table::new(rows)
}

fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_measured_and_own_counts_stay_balanced() {
        let mut chance = Chance::seeded(1);
        let mut table = fleet(8, &mut chance);
        let mut open = VecDeque::new();
        batch_us(&mut table, &mut open, |table| Some(two_of(table, &mut chance)));
        // 256 were taken, all but the last 8 ended.
        assert_eq!(open.len(), 8);
        assert_eq!(table.rows().iter().map(|row| row.own).sum::<f64>(), 8.0);
        let costs = measure(64, Duration::from_millis(5));
        assert!(costs.li_slots_us.is_some_and(|us| us > 0.0) && costs.decisions >= 256);
    }
}
