//! What a pick sees: one row per endpoint, and the parts that change slowly, prepared.

use alloc::vec::Vec;

use crate::chance::Chance;

/// Up to this many endpoints every pick looks at all of them.
pub const ALL_MAX: usize = 64;

/// One endpoint as a pick sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Capacity relative to the others, not degraded by health.
    pub weight: f64,
    /// What is left of it, 0..=1; zero takes nothing.
    pub health: f64,
    /// Requests that run together before queueing starts; `None`: unknown, so slots are ignored.
    pub slots: Option<f64>,
    pub reported: Reported,
    /// Requests of this Envoy at the endpoint.
    pub own: f64,
    /// Equal numbers share a node; 0 is unknown and shares with nobody.
    pub node: u32,
    /// Free share of GPU memory; `None`: unknown, the mean of the others stands for it.
    pub memory_free: Option<f64>,
    /// Position in the round robin; `None` until its first turn.
    pub turn: Option<f64>,
}

/// Load according to the control plane, less what this Envoy had there at the time of the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reported {
    Fresh {
        others: f64,
    },
    /// Silent while other endpoints report: as loaded as then, or as the mean, whichever is more.
    Stale {
        others: f64,
    },
    /// Never heard: as loaded as the mean.
    Unknown,
}

impl Row {
    /// An endpoint without load or peculiarities.
    #[must_use]
    pub const fn idle(weight: f64) -> Self {
        Self {
            weight,
            health: 1.0,
            slots: None,
            reported: Reported::Fresh { others: 0.0 },
            own: 0.0,
            node: 0,
            memory_free: None,
            turn: None,
        }
    }

    /// Load by the last report and own changes since; never less than what is here from this Envoy.
    #[must_use]
    pub fn load(&self) -> f64 {
        match self.reported {
            Reported::Fresh { others } | Reported::Stale { others } => {
                (others + self.own).max(self.own).max(0.0)
            }
            Reported::Unknown => self.own.max(0.0),
        }
    }
}

/// The rows of one service with what is derived from their weights.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
    /// Rows that can take a request, and their capacity: weight times health.
    active: Vec<(usize, f64)>,
    /// Over `active`; empty up to [`ALL_MAX`] of them.
    alias: Alias,
    /// Largest number of slots per weight, undegraded; `None` unless all slots are known.
    slots_per_weight: Option<f64>,
}

impl Table {
    #[must_use]
    pub fn new(rows: Vec<Row>) -> Self {
        let mut table = Self { rows, ..Self::default() };
        table.refresh();
        table
    }

    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row at `index`; after a change of weight, health or slots call [`Self::refresh`].
    pub fn row_mut(&mut self, index: usize) -> Option<&mut Row> {
        self.rows.get_mut(index)
    }

    /// All rows, to be replaced or changed; call [`Self::refresh`] afterwards.
    pub const fn rows_mut(&mut self) -> &mut Vec<Row> {
        &mut self.rows
    }

    /// Derives again what depends on weight, health and slots.
    pub fn refresh(&mut self) {
        self.active.clear();
        let mut slots_per_weight = Some(0.0_f64);
        for (index, row) in self.rows.iter().enumerate() {
            let capacity = row.weight * row.health;
            if !(capacity.is_finite() && capacity > 0.0) {
                continue;
            }
            self.active.push((index, capacity));
            slots_per_weight = match (slots_per_weight, row.slots) {
                (Some(most), Some(slots)) if slots > 0.0 && slots.is_finite() => {
                    Some(most.max(slots / row.weight))
                }
                _ => None,
            };
        }
        self.slots_per_weight = slots_per_weight.filter(|most| *most > 0.0);
        if self.active.len() > ALL_MAX {
            self.alias.build(&self.active);
        } else {
            self.alias.clear();
        }
    }

    #[must_use]
    pub(super) fn active(&self) -> &[(usize, f64)] {
        &self.active
    }

    pub(super) const fn slots_per_weight(&self) -> Option<f64> {
        self.slots_per_weight
    }

    /// Index into `active`, by capacity in constant time; only for large tables.
    pub(super) fn draw_one(&self, chance: &mut Chance) -> usize {
        self.alias.draw(chance)
    }
}

/// Vose's alias method: linear to build, constant to draw.
#[derive(Clone, Debug, Default)]
struct Alias {
    /// Probability to stay, else the index to go to.
    cells: Vec<(f64, usize)>,
    small: Vec<usize>,
    large: Vec<usize>,
}

impl Alias {
    fn clear(&mut self) {
        self.cells.clear();
    }

    fn build(&mut self, weights: &[(usize, f64)]) {
        let total: f64 = weights.iter().map(|w| w.1).sum();
        let scale = weights.len() as f64 / total;
        self.cells.clear();
        self.small.clear();
        self.large.clear();
        for (i, (_, weight)) in weights.iter().enumerate() {
            let share = weight * scale;
            self.cells.push((share, i));
            if share < 1.0 { self.small.push(i) } else { self.large.push(i) }
        }
        while let (Some(&small), Some(&large)) = (self.small.last(), self.large.last()) {
            self.small.pop();
            let missing = 1.0 - self.cells.get(small).map_or(1.0, |cell| cell.0);
            if let Some(cell) = self.cells.get_mut(small) {
                cell.1 = large;
            }
            if let Some(cell) = self.cells.get_mut(large) {
                cell.0 -= missing;
                if cell.0 < 1.0 {
                    self.large.pop();
                    self.small.push(large);
                }
            }
        }
        // What rounding left over stays where it is.
        for &i in self.small.iter().chain(&self.large) {
            if let Some(cell) = self.cells.get_mut(i) {
                *cell = (1.0, i);
            }
        }
    }

    fn draw(&self, chance: &mut Chance) -> usize {
        let at = usize::try_from(chance.below(self.cells.len() as u64)).unwrap_or(0);
        match self.cells.get(at) {
            Some(&(stay, other)) => {
                if chance.unit() < stay {
                    at
                } else {
                    other
                }
            }
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn own_load_is_a_lower_bound() {
        for (reported, own, expected) in [
            (Reported::Fresh { others: 5.0 }, 2.0, 7.0),
            // 3 of ours ended since the sample: −1 + 1 = 0, but one is here
            (Reported::Fresh { others: -1.0 }, 1.0, 1.0),
            (Reported::Stale { others: 4.0 }, 0.0, 4.0),
            (Reported::Unknown, 3.0, 3.0),
        ] {
            let row = Row { reported, own, ..Row::idle(1.0) };
            assert!((row.load() - expected).abs() < 1e-12, "{reported:?}");
        }
    }

    #[test]
    fn only_rows_with_capacity_are_active() {
        let rows = [1.0, 0.0, f64::NAN, f64::INFINITY, -1.0, 2.0].map(Row::idle);
        let mut table = Table::new(rows.to_vec());
        assert_eq!(table.active(), [(0, 1.0), (5, 2.0)]);
        table.row_mut(0).unwrap().health = 0.0;
        table.refresh();
        assert_eq!(table.active(), [(5, 2.0)]);
    }

    #[test]
    fn slots_count_only_when_all_are_known() {
        let with = |slots| Row { slots, health: 0.5, ..Row::idle(2.0) };
        // 8 slots / weight 2, whatever the health
        assert_eq!(
            Table::new(vec![with(Some(8.0)), with(Some(4.0))]).slots_per_weight(),
            Some(4.0)
        );
        assert_eq!(Table::new(vec![with(Some(8.0)), with(None)]).slots_per_weight(), None);
        assert_eq!(Table::new(vec![with(Some(8.0)), with(Some(0.0))]).slots_per_weight(), None);
        assert_eq!(Table::new(vec![]).slots_per_weight(), None);
        // A row that takes nothing has no say.
        let down = Row { health: 0.0, ..with(None) };
        assert_eq!(Table::new(vec![with(Some(8.0)), down]).slots_per_weight(), Some(4.0));
    }

    #[test]
    fn alias_draws_by_weight() {
        let mut rows = vec![Row::idle(1.0); 98];
        rows.push(Row::idle(100.0));
        rows.push(Row::idle(2.0));
        let table = Table::new(rows);
        let mut chance = Chance::seeded(3);
        let mut counts = [0u32; 100];
        for _ in 0..100_000 {
            counts[table.draw_one(&mut chance)] += 1;
        }
        // Shares 100/200, 2/200 and 1/200 of 100000.
        assert!((49_000..51_000).contains(&counts[98]), "{}", counts[98]);
        assert!((850..1_150).contains(&counts[99]), "{}", counts[99]);
        assert!(counts[..98].iter().all(|n| (380..620).contains(n)));
    }
}
