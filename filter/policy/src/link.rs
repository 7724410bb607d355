//! What the stream to the control plane does next.
//!
//! States: no stream until `next_try`; a stream that has said nothing yet; a stream that talks. Any end
//! (closed, refused, silent, a message that cannot be used) leads back to the first state, with a pause of
//! full jitter whose cap doubles with each end in a row. A message that cannot be used ends the stream
//! because changes build on each other, and the next stream starts with the full state.
//!
//! Envoy reports neither a frozen peer nor a connection that never came, so silence is judged here. Until
//! the first answer only the hello is sent, so that nothing piles up in the proxy for a peer that is not
//! there. Pure: `token` names a stream of the host, time and chance are arguments.

use crate::chance::Chance;
use crate::units::{Span, Time};

/// The control plane speaks once a period; this much silence, or three periods, means it is dead.
pub const SILENCE_MAX: Span = Span::secs(5);
const PAUSE_MS_MIN: u64 = 100;
const PAUSE_MS_MAX: u64 = 15_000;

/// Why a stream ended, or did not come to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The proxy has no such cluster, or none of its endpoints.
    Refused,
    /// By the peer, or the way to it broke.
    Closed,
    /// Nothing was heard for too long.
    Silent,
    /// A message could not be used.
    Unusable,
    /// Another worker leads.
    LostLease,
}

impl End {
    pub const ALL: [Self; 5] =
        [Self::Refused, Self::Closed, Self::Silent, Self::Unusable, Self::LostLease];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Closed => "closed",
            Self::Silent => "silent",
            Self::Unusable => "unusable",
            Self::LostLease => "lost_lease",
        }
    }
}

/// What to do at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Wait,
    /// Open a stream and say hello on it; tell the outcome with `opened` or `ended`.
    Open,
    /// Reset this stream; it has been counted as ended.
    Reset {
        token: u32,
        end: End,
    },
    /// Send feedback; its number on this stream.
    Feedback {
        token: u32,
        sequence: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    token: u32,
    heard: Time,
    said: Time,
    sequence: u64,
    talks: bool,
    is_usable: bool,
}

/// The state of the stream.
#[derive(Clone, Debug, Default)]
pub struct Link {
    stream: Option<Stream>,
    ends_in_a_row: u32,
    next_try: Time,
}

impl Link {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number on the gauge: 0 no stream, 1 opened, 2 talking.
    #[must_use]
    pub fn state(&self) -> u8 {
        self.stream.map_or(0, |stream| 1 + u8::from(stream.talks))
    }

    /// Ends without a good message between them.
    #[must_use]
    pub const fn ends_in_a_row(&self) -> u32 {
        self.ends_in_a_row
    }

    /// Whether `token` is the present stream.
    #[must_use]
    pub fn is_on(&self, token: u32) -> bool {
        self.stream.is_some_and(|stream| stream.token == token)
    }

    /// Whether messages of `token` are to be read.
    #[must_use]
    pub fn listens_to(&self, token: u32) -> bool {
        self.stream.is_some_and(|stream| stream.token == token && stream.is_usable)
    }

    /// Decides what is due; `period` is that of the control plane.
    pub fn tick(&mut self, now: Time, period: Span, chance: &mut Chance) -> Step {
        let Some(stream) = &mut self.stream else {
            return if now < self.next_try { Step::Wait } else { Step::Open };
        };
        let token = stream.token;
        let end = if !stream.is_usable {
            Some(End::Unusable)
        } else if now.since(stream.heard) > period.times(3).max(SILENCE_MAX) {
            Some(End::Silent)
        } else {
            None
        };
        if let Some(end) = end {
            self.ended(now, chance);
            return Step::Reset { token, end };
        }
        if !stream.talks || now.since(stream.said) < period {
            return Step::Wait;
        }
        stream.said = now;
        stream.sequence = stream.sequence.saturating_add(1);
        Step::Feedback { token, sequence: stream.sequence }
    }

    /// The host opened stream `token`.
    pub const fn opened(&mut self, now: Time, token: u32) {
        self.stream = Some(Stream {
            token,
            heard: now,
            said: now,
            sequence: 0,
            talks: false,
            is_usable: true,
        });
    }

    /// A good message came; true when it is the first of its stream.
    pub fn heard(&mut self, now: Time) -> bool {
        self.ends_in_a_row = 0;
        let Some(stream) = &mut self.stream else { return false };
        stream.heard = now;
        !core::mem::replace(&mut stream.talks, true)
    }

    /// A message could not be used. The next tick resets the stream: to reset it inside the callback of
    /// its message would free what the host still hands other messages to.
    pub const fn unusable(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.is_usable = false;
        }
    }

    /// The stream is gone, or could not be opened.
    pub fn ended(&mut self, now: Time, chance: &mut Chance) {
        self.stream = None;
        self.next_try = now.plus(pause(self.ends_in_a_row, chance));
        self.ends_in_a_row = self.ends_in_a_row.saturating_add(1);
    }

    /// Another worker leads: the stream to reset, if there is one.
    pub fn follow(&mut self) -> Option<u32> {
        self.ends_in_a_row = 0;
        self.next_try = Time::ms(0);
        self.stream.take().map(|stream| stream.token)
    }
}

/// The pause after an end that follows `ends` others: uniform between 0.1 s and a cap of 0.2 s doubled
/// for each of them, at most 15 s.
fn pause(ends: u32, chance: &mut Chance) -> Span {
    let cap = (200_u64 << ends.min(10)).min(PAUSE_MS_MAX);
    Span::ms(PAUSE_MS_MIN.saturating_add(chance.below(cap - PAUSE_MS_MIN + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Span = Span::ms(500);

    fn t(ms: u64) -> Time {
        Time::ms(ms)
    }

    fn open(now: Time) -> (Link, Chance) {
        let mut link = Link::new();
        let mut chance = Chance::seeded(1);
        assert_eq!(link.tick(now, PERIOD, &mut chance), Step::Open);
        link.opened(now, 7);
        (link, chance)
    }

    #[test]
    fn feedback_waits_for_the_first_answer_and_then_comes_each_period() {
        let (mut link, mut chance) = open(t(1_000));
        assert_eq!((link.tick(t(2_000), PERIOD, &mut chance), link.state()), (Step::Wait, 1));
        assert!(link.heard(t(2_000)));
        assert!(!link.heard(t(2_010)));
        let first = Step::Feedback { token: 7, sequence: 1 };
        assert_eq!((link.tick(t(2_010), PERIOD, &mut chance), link.state()), (first, 2));
        assert_eq!(link.tick(t(2_509), PERIOD, &mut chance), Step::Wait);
        let second = Step::Feedback { token: 7, sequence: 2 };
        assert_eq!(link.tick(t(2_510), PERIOD, &mut chance), second);
    }

    #[test]
    fn silence_ends_the_stream_after_five_seconds_or_three_periods() {
        for (period_ms, at_ms, is_over) in [
            (500, 6_000, false),
            (500, 6_001, true),
            // 3 × 2 s = 6 s
            (2_000, 7_000, false),
            (2_000, 7_001, true),
        ] {
            let (mut link, mut chance) = open(t(1_000));
            let step = link.tick(t(at_ms), Span::ms(period_ms), &mut chance);
            let expected =
                if is_over { Step::Reset { token: 7, end: End::Silent } } else { Step::Wait };
            assert_eq!(step, expected, "period {period_ms} at {at_ms}");
        }
    }

    #[test]
    fn a_bad_message_ends_the_stream_at_the_next_tick_only() {
        let (mut link, mut chance) = open(t(0));
        assert!(link.listens_to(7) && !link.listens_to(8));
        link.unusable();
        assert!(!link.listens_to(7));
        let reset = Step::Reset { token: 7, end: End::Unusable };
        assert_eq!(link.tick(t(50), PERIOD, &mut chance), reset);
        assert_eq!(link.tick(t(51), PERIOD, &mut chance), Step::Wait);
        assert_eq!(link.tick(t(50 + 200), PERIOD, &mut chance), Step::Open);
    }

    #[test]
    fn pauses_double_up_to_fifteen_seconds_with_full_jitter() {
        let mut chance = Chance::seeded(3);
        for (ends, cap_ms) in [(0, 200), (1, 400), (6, 12_800), (7, 15_000), (u32::MAX, 15_000)] {
            let pauses: alloc::vec::Vec<u64> =
                (0..2_000).map(|_| pause(ends, &mut chance).as_ms()).collect();
            let (min, max) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
            assert!(*min >= 100 && *max <= cap_ms, "{ends}: {min}..{max}");
            // 2000 draws reach the outer 2 % on both sides.
            let margin = (cap_ms - 100) / 50 + 1;
            assert!(*min <= 100 + margin && *max >= cap_ms - margin, "{ends}: {min}..{max}");
        }
    }

    #[test]
    fn a_good_message_makes_the_next_pause_short_again() {
        let (mut link, mut chance) = open(t(0));
        for _ in 0..10 {
            link.ended(t(0), &mut chance);
        }
        link.opened(t(0), 8);
        link.heard(t(0));
        link.ended(t(0), &mut chance);
        assert_eq!(link.tick(t(200), PERIOD, &mut chance), Step::Open);
    }

    #[test]
    fn a_follower_gives_its_stream_up_and_may_lead_again_at_once() {
        let (mut link, mut chance) = open(t(0));
        assert_eq!(link.follow(), Some(7));
        assert_eq!(link.follow(), None);
        assert_eq!(link.tick(t(0), PERIOD, &mut chance), Step::Open);
    }
}
