//! The score of each endpoint of a service, by the entropy method over the whole service.
//!
//! Weights of the indicators are computed anew every 10 s and smoothed over a minute, since what
//! differs at one moment is mostly load. A missing cell gets the median of the same GPU type over the
//! last 10 s; an endpoint without any value gets half the median score; one alone gets 1.
use alloc::{collections::BTreeMap, string::String, vec::Vec};

use tidegate_policy::units::{Span, Time};

use crate::{
    endpoint::Observed,
    entropy::{self, Indicator, Prior, Row},
    numbers::{ewma, median},
};

const WEIGHTS_EVERY: Span = Span::secs(10);
const WEIGHTS_TAU: Span = Span::secs(60);
const MEDIAN_MAX_AGE: Span = Span::secs(10);
const NEUTRAL_PART: f64 = 0.5;
/// Score when nobody has any data.
const NEUTRAL: f64 = 0.5;

type TypeMedians = [Option<(f64, Time)>; Indicator::COUNT];

#[derive(Debug, Clone, Default)]
pub(crate) struct Scorer {
    weights: Option<([f64; Indicator::COUNT], Time)>,
    medians: BTreeMap<String, TypeMedians>,
    used: [f64; Indicator::COUNT],
    rows: Vec<[f64; Indicator::COUNT]>,
}

/// One endpoint's score of this moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ScoreNow {
    pub(crate) value: f64,
    /// Half the median: what an endpoint is worth of which nothing is known.
    pub(crate) neutral: f64,
    pub(crate) has_data: bool,
}

impl Scorer {
    /// Weights of the last step, and its completed rows.
    pub(crate) fn used(&self) -> &[f64; Indicator::COUNT] {
        &self.used
    }

    pub(crate) fn rows(&self) -> &[[f64; Indicator::COUNT]] {
        &self.rows
    }

    pub(crate) fn step(
        &mut self,
        now: Time,
        observed: &[Observed],
        prior: &Prior,
    ) -> Vec<ScoreNow> {
        let rows: Vec<Row> = observed.iter().map(|o| o.indicators.row).collect();
        self.update_medians(now, observed);
        let medians = &self.medians;
        let evaluation = entropy::evaluate(&rows, prior, |row, indicator| {
            let gpu_type = observed.get(row)?.gpu_type.as_deref().unwrap_or_default();
            let at = Indicator::ALL.iter().position(|i| *i == indicator)?;
            medians.get(gpu_type)?.get(at).copied().flatten().map(|(z, _)| z)
        });
        self.used = self.smooth_weights(now, evaluation.weights);
        self.rows = evaluation.rows;

        let known: Vec<Option<f64>> = rows
            .iter()
            .zip(&self.rows)
            .map(|(row, completed)| {
                entropy::has_any(row).then(|| entropy::score(&self.used, completed))
            })
            .collect();
        let is_alone = observed.len() == 1;
        let neutral = median(known.iter().flatten().copied()).map_or(NEUTRAL, |m| m * NEUTRAL_PART);
        known
            .into_iter()
            .map(|score| ScoreNow {
                value: if is_alone { 1.0 } else { score.unwrap_or(neutral) },
                neutral: if is_alone { 1.0 } else { neutral },
                has_data: score.is_some(),
            })
            .collect()
    }

    fn smooth_weights(
        &mut self,
        now: Time,
        fresh: [f64; Indicator::COUNT],
    ) -> [f64; Indicator::COUNT] {
        let has_weights = fresh.iter().sum::<f64>() > 0.0;
        let (weights, at) = match self.weights {
            None => (fresh, now),
            Some((old, at)) if has_weights && now.since(at) >= WEIGHTS_EVERY => {
                let dt = now.since(at);
                let mut next = old;
                for (slot, target) in next.iter_mut().zip(fresh) {
                    *slot = ewma(*slot, target, dt, WEIGHTS_TAU);
                }
                (next, now)
            }
            Some(kept) => kept,
        };
        if has_weights {
            self.weights = Some((weights, at));
        }
        // Only the columns that there are now can be used.
        let mut used = weights;
        for (slot, fresh) in used.iter_mut().zip(fresh) {
            if fresh <= 0.0 {
                *slot = 0.0;
            }
        }
        let total: f64 = used.iter().sum();
        if total <= 0.0 {
            return fresh;
        }
        used.map(|w| w / total)
    }

    fn update_medians(&mut self, now: Time, observed: &[Observed]) {
        let mut cells: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for o in observed {
            cells
                .entry(o.gpu_type.as_deref().unwrap_or_default())
                .or_default()
                .push(&o.indicators.row);
        }
        self.medians.retain(|gpu_type, _| cells.contains_key(gpu_type.as_str()));
        for (gpu_type, rows) in cells {
            let medians = self.medians.entry(gpu_type.into()).or_default();
            for (j, slot) in medians.iter_mut().enumerate() {
                let values = rows.iter().filter_map(|r| r.get(j).copied().flatten());
                if let Some(value) = median(values) {
                    *slot = Some((value, now));
                } else if slot.is_some_and(|(_, at)| now.since(at) > MEDIAN_MAX_AGE) {
                    *slot = None;
                }
            }
        }
    }
}
