//! Rates and quantiles over the last seconds, from counters and histograms that only grow.
//!
//! A quantile of everything since the server started says nothing about now, and one period of 500 ms
//! holds too few requests. So readings of up to 15 s are kept, one a second, and the difference of newest
//! and oldest counts. No request in that time: no quantile, which is not zero. A counter that went back
//! means a restart, and the window begins anew.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    names::Figure,
    text::{Buckets, Figures},
    to_u32,
};

const LENGTH: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_secs(1);
/// More than this is a mistake of the page.
const TOKENS_PER_SECOND_MAX: f64 = 1e9;
const TTFT_MS_MAX: u32 = 3_600_000;

struct Point {
    at: Instant,
    tokens: Option<f64>,
    ttft: Option<Buckets>,
}

#[derive(Default)]
pub(super) struct Window {
    points: VecDeque<Point>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) ttft_p50_ms: Option<u32>,
    pub(super) ttft_p95_ms: Option<u32>,
    pub(super) tokens_per_second: Option<f64>,
}

impl Window {
    /// Adds a reading and says what the window shows.
    pub(super) fn add(&mut self, at: Instant, figures: &Figures) -> Rates {
        let now = Point {
            at,
            tokens: figures.counter(Figure::Tokens),
            ttft: figures.histogram(Figure::Ttft).cloned(),
        };
        if self.points.back().is_some_and(|last| went_back(last, &now)) {
            self.points.clear();
        }
        // The oldest goes only when the next one still reaches back the whole length.
        while self.points.get(1).is_some_and(|second| at.duration_since(second.at) >= LENGTH) {
            self.points.pop_front();
        }
        let rates = self.points.front().map_or_else(Rates::default, |old| rates(old, &now));
        if self.points.back().is_none_or(|last| at.duration_since(last.at) >= STEP) {
            self.points.push_back(now);
        }
        rates
    }
}

fn went_back(before: &Point, now: &Point) -> bool {
    let total = |point: &Point| point.ttft.as_ref().and_then(|b| b.values().last().copied());
    let back = |old: Option<f64>, new: Option<f64>| old.zip(new).is_some_and(|(o, n)| n < o);
    back(before.tokens, now.tokens) || back(total(before), total(now))
}

fn rates(old: &Point, now: &Point) -> Rates {
    let seconds = now.at.saturating_duration_since(old.at).as_secs_f64();
    let tokens = now.tokens.zip(old.tokens).map(|(new, old)| new - old);
    let buckets = match (&old.ttft, &now.ttft) {
        (Some(old), Some(now)) => difference(old, now),
        _ => Vec::new(),
    };
    Rates {
        ttft_p50_ms: quantile_ms(&buckets, 0.50),
        ttft_p95_ms: quantile_ms(&buckets, 0.95),
        tokens_per_second: tokens
            .filter(|_| seconds > 0.0)
            .map(|tokens| tokens / seconds)
            .filter(|rate| (0.0..=TOKENS_PER_SECOND_MAX).contains(rate)),
    }
}

fn difference(old: &Buckets, now: &Buckets) -> Vec<(u64, f64)> {
    now.iter().map(|(bound, n)| (*bound, n - old.get(bound).copied().unwrap_or(0.0))).collect()
}

/// The quantile by linear interpolation within its bucket, as Prometheus does it.
fn quantile_ms(buckets: &[(u64, f64)], quantile: f64) -> Option<u32> {
    let (_, total) = *buckets.last()?;
    if total <= 0.0 {
        return None;
    }
    let rank = quantile * total;
    let mut below = (0_u64, 0.0_f64);
    for (bound, count) in buckets {
        if *count >= rank {
            // The last bucket has no upper bound: its lower one is all that is known.
            if *bound == u64::MAX {
                return to_ms(below.0, 0.0);
            }
            let share = (rank - below.1) / (count - below.1).max(f64::MIN_POSITIVE);
            #[expect(clippy::cast_precision_loss, reason = "microseconds of a request")]
            let width = (bound - below.0) as f64;
            return to_ms(below.0, width * share.clamp(0.0, 1.0));
        }
        below = (*bound, *count);
    }
    None
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of a request")]
fn to_ms(micros: u64, more_micros: f64) -> Option<u32> {
    to_u32((micros as f64 + more_micros) / 1_000.0).filter(|ms| *ms <= TTFT_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(tokens: u64, buckets: [u64; 4]) -> Figures {
        let mut figures = Figures::default();
        let name = "vllm:time_to_first_token_seconds_bucket";
        for (le, n) in ["0.1", "0.2", "0.4", "+Inf"].iter().zip(buckets) {
            figures.feed(format!("{name}{{le=\"{le}\"}} {n}\n").as_bytes());
        }
        figures.feed(format!("vllm:generation_tokens_total {tokens}\n").as_bytes());
        figures
    }

    #[test]
    fn quantiles_interpolate_within_the_window_only() {
        let (mut window, start) = (Window::default(), Instant::now());
        assert_eq!(window.add(start, &page(100, [50, 50, 50, 50])), Rates::default());
        // Ten new requests: 4 below 100 ms, 4 below 200, 2 below 400.
        let rates = window.add(start + Duration::from_secs(2), &page(700, [54, 58, 60, 60]));
        // p50: rank 5, one of 4 into 100–200 → 125. p95: rank 9.5, 1.5 of 2 into 200–400 → 350.
        assert_eq!((rates.ttft_p50_ms, rates.ttft_p95_ms), (Some(125), Some(350)));
        // 600 tokens in 2 s.
        assert_eq!(rates.tokens_per_second, Some(300.0));
    }

    #[test]
    fn no_request_gives_no_quantile_but_zero_tokens() {
        let (mut window, start) = (Window::default(), Instant::now());
        window.add(start, &page(5, [1, 1, 1, 1]));
        let rates = window.add(start + Duration::from_secs(1), &page(5, [1, 1, 1, 1]));
        assert_eq!((rates.ttft_p50_ms, rates.tokens_per_second), (None, Some(0.0)));
    }

    #[test]
    fn above_the_last_bound_its_value_is_told() {
        let (mut window, start) = (Window::default(), Instant::now());
        window.add(start, &page(0, [0, 0, 0, 0]));
        let rates = window.add(start + Duration::from_secs(1), &page(0, [0, 0, 0, 3]));
        assert_eq!(rates.ttft_p50_ms, Some(400));
    }

    #[test]
    fn a_restarted_server_begins_a_new_window() {
        let (mut window, start) = (Window::default(), Instant::now());
        window.add(start, &page(1_000, [9, 9, 9, 9]));
        let second = |n| start + Duration::from_secs(n);
        assert_eq!(window.add(second(1), &page(10, [0, 0, 0, 0])).tokens_per_second, None);
        assert_eq!(window.add(second(2), &page(30, [0, 0, 0, 0])).tokens_per_second, Some(20.0));
    }

    #[test]
    fn the_window_is_fifteen_seconds_of_one_point_each() {
        let (mut window, start) = (Window::default(), Instant::now());
        for half in 0..200_u32 {
            window.add(start + Duration::from_millis(500) * half, &page(u64::from(half), [0; 4]));
        }
        assert!(window.points.len() <= 17, "{}", window.points.len());
    }
}
