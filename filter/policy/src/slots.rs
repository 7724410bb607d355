//! Where each worker puts its counters for the other workers and for the watcher.
//!
//! Shared data cannot be listed, so workers sit in numbered slots. A slot's value is a [`Card`] and the
//! counters behind it. A slot whose card is not renewed for [`FRESH`] counts for nobody (its VM
//! trapped, or its plugin was replaced), and after [`FREE`] another worker takes it, so that a worker
//! that traps again and again does not fill the map.
//!
//! A worker writes its slot under the version that it just read, and only while the card names it; two
//! workers that took one slot at once part at their next tick.

use alloc::vec::Vec;

use crate::units::{Span, Time};

/// Most workers of one Envoy that share counters; further ones steer by their own counters alone.
pub const SLOTS: usize = 128;
/// A card older than this is not counted.
pub const FRESH: Span = Span::secs(2);
/// A card older than this is free to take; longer than [`FRESH`] so that a stalled worker finds its slot.
pub const FREE: Span = Span::secs(10);

/// Who wrote a slot, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    pub owner: u64,
    pub at: Time,
}

/// Where a worker's counters go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// This slot names the worker already.
    Mine(usize),
    /// This slot is free.
    Take(usize),
    /// A slot behind the last one.
    Append,
    /// Every slot is in use.
    Full,
}

/// Decides for worker `me` among the slots as they were read.
#[must_use]
pub fn place(cards: &[Option<Card>], me: u64, now: Time) -> Place {
    if let Some(slot) = cards.iter().position(|c| c.is_some_and(|c| c.owner == me)) {
        return Place::Mine(slot);
    }
    let is_free = |card: &Option<Card>| card.is_none_or(|card| now.since(card.at) > FREE);
    match cards.iter().position(is_free) {
        Some(slot) => Place::Take(slot),
        None if cards.len() < SLOTS => Place::Append,
        None => Place::Full,
    }
}

impl Card {
    #[must_use]
    pub fn is_fresh(self, now: Time) -> bool {
        now.since(self.at) <= FRESH
    }

    /// The slot's value: this card, then the counters.
    #[must_use]
    pub fn before(self, counters: &[u8]) -> Vec<u8> {
        [&self.owner.to_le_bytes(), &self.at.as_ms().to_le_bytes(), counters].concat()
    }

    /// The card and the counters behind it; `None` for a value that no worker wrote.
    #[must_use]
    pub fn split(value: &[u8]) -> Option<(Self, &[u8])> {
        let (owner, rest) = value.split_first_chunk::<8>()?;
        let (at, counters) = rest.split_first_chunk::<8>()?;
        let at = Time::ms(u64::from_le_bytes(*at));
        Some((Self { owner: u64::from_le_bytes(*owner), at }, counters))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn card(owner: u64, at_ms: u64) -> Option<Card> {
        Some(Card { owner, at: Time::ms(at_ms) })
    }

    #[test]
    fn where_a_worker_writes() {
        let now = Time::ms(100_000);
        // Free is older than 10 s: 89 999 is, 90 000 is not.
        for (cards, expected) in [
            (vec![], Place::Append),
            (vec![card(2, 100_000)], Place::Append),
            (vec![card(2, 90_000)], Place::Append),
            (vec![card(2, 89_999)], Place::Take(0)),
            (vec![card(2, 100_000), None], Place::Take(1)),
            (vec![card(2, 0), card(1, 0)], Place::Mine(1)),
            (vec![card(1, 100_000), card(2, 0)], Place::Mine(0)),
            (vec![card(2, 100_000); SLOTS - 1], Place::Append),
            (vec![card(2, 100_000); SLOTS], Place::Full),
        ] {
            assert_eq!(place(&cards, 1, now), expected, "{cards:?}");
        }
    }

    #[test]
    fn a_card_counts_for_two_seconds_and_holds_its_slot_for_ten() {
        let card = Card { owner: 1, at: Time::ms(5_000) };
        assert!(card.is_fresh(Time::ms(7_000)));
        assert!(!card.is_fresh(Time::ms(7_001)));
        assert!(card.is_fresh(Time::ms(0)), "another worker's clock reading may be a little ahead");
        assert!(FRESH < FREE);
    }

    #[test]
    fn values_split_as_they_were_joined() {
        let card = Card { owner: 7, at: Time::ms(9) };
        assert_eq!(Card::split(&card.before(b"counters")), Some((card, b"counters".as_slice())));
        assert_eq!(Card::split(&card.before(b"")), Some((card, b"".as_slice())));
        for len in 0..16 {
            assert_eq!(Card::split(&vec![1; len]), None, "{len} bytes");
        }
    }
}
