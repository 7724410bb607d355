//! Water-filling: the level to which load rises when the unseen arrivals are poured over the endpoints.
//!
//! Each endpoint is a vessel that already holds its load. Pouring `amount` requests raises all to one
//! level; what each vessel takes in is its share of the picks. So picks follow the load expected at the
//! *end* of the reporting period, and no stale minimum draws a herd.
//!
//! Plain: a vessel is as wide as its capacity. Slot-aware: below level 1 a vessel fills its slots at
//! the pace of the best endpoint, at level 1 all slots are full, above it queues grow with capacity.
//! Both are solved by Newton steps on a piecewise linear function, which is exact once the right piece
//! is met, most often after three to five passes; sorting or bisecting costs more.

/// One vessel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Vessel {
    /// Index of the row.
    pub row: usize,
    /// Weight times health.
    pub capacity: f64,
    pub load: f64,
    /// Usable slots: slots times health.
    pub slots: f64,
    /// What the pour adds; the probability of a pick up to scale.
    pub share: f64,
}

/// Passes at most; a bisection alone is exact to 2^-32 of the bracket by then.
const PASSES_MAX: usize = 32;
/// Relative error of the amount that is as good as exact.
const CLOSE: f64 = 1e-9;

/// Fills `share` of each vessel: `max(0, level × capacity − load)`, summing to `amount`.
pub(crate) fn pour_plain(vessels: &mut [Vessel], amount: f64) {
    // Start with everybody under water: that level is never too low, and it only sinks.
    let mut level = f64::INFINITY;
    for _ in 0..PASSES_MAX {
        let (mut width, mut held) = (0.0, 0.0);
        for v in vessels.iter() {
            if v.load < level * v.capacity {
                width += v.capacity;
                held += v.load;
            }
        }
        let next = (amount + held) / width;
        // A NaN, which huge numbers could make, ends it too.
        let sinks = next < level * (1.0 - 1e-12);
        if !sinks {
            break;
        }
        level = next;
    }
    for v in vessels {
        v.share = positive(level * v.capacity - v.load);
    }
}

/// Fills `share` of each vessel by slot-aware targets, with `per_weight` slots per unit of weight.
pub(crate) fn pour_slots(vessels: &mut [Vessel], amount: f64, per_weight: f64) {
    let (mut width, mut held) = (0.0, 0.0);
    for v in vessels.iter() {
        width += per_weight * v.capacity;
        held += v.load;
    }
    // At `high` the queues alone would take more than `amount`.
    let (mut low, mut high) = (0.0, 1.0 + (amount + held) / width);
    let mut level = 1.0_f64.min(high);
    for _ in 0..PASSES_MAX {
        let (mut poured, mut slope) = (0.0, 0.0);
        for v in vessels.iter() {
            let (target, rise) = target(v, level, per_weight);
            if target > v.load {
                poured += target - v.load;
                slope += rise;
            }
        }
        let missing = amount - poured;
        let is_off = missing.abs() > amount * CLOSE;
        if !is_off {
            break;
        }
        if missing > 0.0 {
            low = level
        } else {
            high = level
        }
        let newton = level + missing / slope;
        level = if newton > low && newton < high { newton } else { low + (high - low) / 2.0 };
    }
    for v in vessels {
        v.share = positive(target(v, level, per_weight).0 - v.load);
    }
}

/// Target load at `level`, and how fast it rises with the level.
fn target(v: &Vessel, level: f64, per_weight: f64) -> (f64, f64) {
    let pace = per_weight * v.capacity;
    if level > 1.0 {
        (v.slots + (level - 1.0) * pace, pace)
    } else if level * pace < v.slots {
        (level * pace, pace)
    } else {
        (v.slots, 0.0)
    }
}

fn positive(x: f64) -> f64 {
    if x > 0.0 && x.is_finite() { x } else { 0.0 }
}

#[cfg(test)]
mod tests;
