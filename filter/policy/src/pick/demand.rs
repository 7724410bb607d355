//! How many requests of other proxies are on their way unseen.
//!
//! Between two reports the other proxies send `lambda × (1 − phi)` requests a second, which this one
//! cannot see. Water-filling pours as many. With one proxy, `phi` is 1 and nothing is unseen: each
//! request goes where the exact counts say. With many, or with old reports, the pour grows and picks
//! tend to capacity. When the rate is in doubt the larger number is taken: too flat costs little, too
//! sharp makes a herd.
//!
//! As many requests as arrive also end, unseen as well: `lambda × age × (1 − phi)` of the reported ones
//! are gone by now, shared out over the endpoints by how fast their busy slots work. Reckoning with
//! that took P50 from 1.26 to 1.23 and P99 from 1.09 to 1.05 times the ideal (8 GPUs of speeds 1.0
//! and 0.45, 16 proxies, load 0.85, counts 0.1 s to 0.6 s old), and cost nothing measurable elsewhere.
//!
//! When updates stop coming the counts stand still, and what they said last must not go on to draw
//! requests for seconds: slots are then left out, since a pour of many slots' worth would fill slow
//! endpoints like fast ones, and the counts fade. That leaves capacity, and the own counts.

use crate::units::{Span, Time};

/// Unseen arrivals grow with age up to this.
const AGE_MAX: Span = Span::secs(5);
/// Time constant of the own arrival rate.
const RATE_SECONDS: f64 = 5.0;
/// Slots are worth knowing when reports are at most this share of the service time old.
const PERIOD_OVER_SERVICE_MAX: f64 = 0.5;

/// What water-filling pours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Requests, at least the one that is being picked for.
    pub unseen: f64,
    /// Requests of others that have ended since the report.
    pub departed: f64,
    pub slots: Slots,
}

/// Whether the number of slots is worth knowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    Used,
    Ignored,
}

/// What the snapshot and this Envoy know about arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// Requests a second of all proxies; `None`: taken as if the others were like this one.
    pub fleet_rate: Option<f64>,
    /// Requests a second of this Envoy.
    pub own_rate: f64,
    pub proxies_live: u32,
    pub period: Span,
    /// Age of the data.
    pub age: Span,
    pub mean_service: Option<Span>,
}

impl Demand {
    #[must_use]
    pub fn of(arrivals: &Arrivals) -> Self {
        let proxies = f64::from(arrivals.proxies_live.max(1));
        let own = if arrivals.own_rate.is_finite() { arrivals.own_rate.max(0.0) } else { 0.0 };
        let fleet = match arrivals.fleet_rate {
            Some(rate) if rate.is_finite() => rate.max(own),
            _ => own * proxies,
        };
        let phi = if fleet > 0.0 { (own / fleet).clamp(1.0 / proxies, 1.0) } else { 1.0 / proxies };
        let window = arrivals.period.max(arrivals.age).min(AGE_MAX).as_secs_f64();
        let age = arrivals.age.min(AGE_MAX).as_secs_f64();
        let period = arrivals.period.as_secs_f64();
        let of_others = fleet * (1.0 - phi);
        let slots = match arrivals.mean_service {
            Some(service)
                if period <= PERIOD_OVER_SERVICE_MAX * service.as_secs_f64()
                    && arrivals.age <= service =>
            {
                Slots::Used
            }
            _ => Slots::Ignored,
        };
        let passed = match slots {
            Slots::Used => age,
            // Within a period plain water-filling does as well without; it is old counts that mislead.
            Slots::Ignored => (age - period).max(0.0),
        };
        Self {
            unseen: (of_others * window).clamp(1.0, 1e9),
            departed: (of_others * passed).clamp(0.0, 1e9),
            slots,
        }
    }
}

/// Moving average of a rate, fed with counts at ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    value: f64,
    at: Time,
}

impl Rate {
    #[must_use]
    pub const fn new(now: Time) -> Self {
        Self { value: 0.0, at: now }
    }

    /// `count` events came since the last call; calls without time between them add up.
    pub fn feed(&mut self, now: Time, count: u64) {
        let seconds = now.since(self.at).as_secs_f64();
        if seconds > 0.0 {
            let keep = libm::exp(-seconds / RATE_SECONDS);
            self.value = self.value * keep + count as f64 / seconds * (1.0 - keep);
        } else {
            // The limit of the above for a vanishing time.
            self.value += count as f64 / RATE_SECONDS;
        }
        self.at = now;
    }

    #[must_use]
    pub const fn per_second(&self) -> f64 {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRIVALS: Arrivals = Arrivals {
        fleet_rate: Some(100.0),
        own_rate: 10.0,
        proxies_live: 20,
        period: Span::ms(500),
        age: Span::ms(300),
        mean_service: Some(Span::secs(1)),
    };

    fn unseen(arrivals: Arrivals) -> f64 {
        Demand::of(&arrivals).unseen
    }

    fn check(arrivals: Arrivals, expected: f64) {
        assert!((unseen(arrivals) - expected).abs() < 1e-9, "{} {arrivals:?}", unseen(arrivals));
    }

    #[test]
    fn pours_what_the_others_send_until_the_next_report() {
        // 100/s × 0.5 s × (1 − 10/100)
        check(ARRIVALS, 45.0);
        // older than a period: 100 × 2 × 0.9
        check(Arrivals { age: Span::secs(2), ..ARRIVALS }, 180.0);
        // no longer than 5 s: 100 × 5 × 0.9
        check(Arrivals { age: Span::secs(60), ..ARRIVALS }, 450.0);
        // an Envoy that sends less than its part counts as an average one: 1 − 1/20
        check(Arrivals { own_rate: 1.0, ..ARRIVALS }, 47.5);
    }

    #[test]
    fn as_many_of_the_others_end_as_came_since_the_report() {
        let departed = |age| Demand::of(&Arrivals { age, ..ARRIVALS }).departed;
        // 100/s × 0.3 s × (1 − 10/100); a report of this moment; as old as a request takes. Older, slots
        // are left out and the first period is: 100 × (2 − 0.5) × 0.9; no longer than 5 s
        for (age, expected) in
            [(300, 27.0), (0, 0.0), (1_000, 90.0), (2_000, 135.0), (60_000, 405.0)]
        {
            assert!((departed(Span::ms(age)) - expected).abs() < 1e-9, "{age}");
        }
        let quick = Arrivals { mean_service: Some(Span::ms(100)), ..ARRIVALS };
        assert!(Demand::of(&quick).departed.abs() < 1e-9, "plain within a period");
        let alone = Arrivals { proxies_live: 1, own_rate: 100.0, ..ARRIVALS };
        assert!(Demand::of(&alone).departed.abs() < 1e-9);
    }

    #[test]
    fn one_proxy_sees_everything() {
        check(Arrivals { proxies_live: 1, ..ARRIVALS }, 1.0);
        check(Arrivals { proxies_live: 0, ..ARRIVALS }, 1.0);
    }

    #[test]
    fn never_less_than_the_request_at_hand() {
        check(Arrivals { fleet_rate: Some(0.0), own_rate: 0.0, ..ARRIVALS }, 1.0);
        check(Arrivals { fleet_rate: Some(0.1), own_rate: 0.0, ..ARRIVALS }, 1.0);
    }

    #[test]
    fn an_unknown_rate_is_taken_from_the_own_one() {
        // 10/s × 20 proxies × 0.5 s × (1 − 1/20)
        check(Arrivals { fleet_rate: None, ..ARRIVALS }, 95.0);
        check(Arrivals { fleet_rate: Some(f64::NAN), ..ARRIVALS }, 95.0);
    }

    #[test]
    fn a_fleet_rate_under_the_own_rate_is_late() {
        // max(5, 10) = 10; phi = 1: nothing is unseen
        check(Arrivals { fleet_rate: Some(5.0), ..ARRIVALS }, 1.0);
    }

    #[test]
    fn slots_at_half_the_service_time() {
        let slots = |service| Demand::of(&Arrivals { mean_service: service, ..ARRIVALS }).slots;
        assert_eq!(slots(Some(Span::ms(1_001))), Slots::Used);
        assert_eq!(slots(Some(Span::ms(1_000))), Slots::Used);
        assert_eq!(slots(Some(Span::ms(999))), Slots::Ignored);
        assert_eq!(slots(None), Slots::Ignored);
        let at_age = |ms| Demand::of(&Arrivals { age: Span::ms(ms), ..ARRIVALS }).slots;
        assert_eq!(at_age(1_000), Slots::Used);
        assert_eq!(at_age(1_001), Slots::Ignored);
    }

    #[test]
    fn odd_numbers_give_a_finite_pour() {
        for rate in [f64::INFINITY, f64::NAN, -5.0, f64::MAX] {
            for own in [f64::INFINITY, f64::NAN, -5.0, 0.0, f64::MAX] {
                let a = Arrivals { fleet_rate: Some(rate), own_rate: own, ..ARRIVALS };
                let found = Demand::of(&Arrivals { proxies_live: u32::MAX, ..a });
                assert!((1.0..=1e9).contains(&found.unseen), "{rate} {own}: {found:?}");
                assert!((0.0..=1e9).contains(&found.departed), "{rate} {own}: {found:?}");
            }
        }
    }

    #[test]
    fn rate_converges_and_forgets() {
        let mut rate = Rate::new(Time::ms(0));
        for tick in 1..=600 {
            rate.feed(Time::ms(tick * 50), 2);
        }
        // 2 per 50 ms = 40/s, to e^(−30/5) = 0.25 %
        assert!((rate.per_second() - 40.0).abs() < 0.2);
        rate.feed(Time::ms(35_000), 0);
        // 5 s later: 40 / e = 14.7
        assert!((rate.per_second() - 14.7).abs() < 0.2);
    }

    #[test]
    fn rate_survives_a_clock_that_stands_or_steps_back() {
        let mut rate = Rate::new(Time::ms(1_000));
        rate.feed(Time::ms(1_000), 5);
        rate.feed(Time::ms(500), 5);
        // 10 events / 5 s
        assert!((rate.per_second() - 2.0).abs() < 1e-9);
    }
}
