//! Which VM of an Envoy process talks to the control plane.
//!
//! Envoy runs one VM per worker and one on the main thread, and all of them tick. They share a map with
//! compare-and-swap but without atomic create: a write to an absent key always succeeds. So nobody leads
//! on the strength of a write. A VM leads while the record that it reads names it, and two VMs that both
//! wrote to the absent key see at their next tick which of them came last: at most one tick of two
//! leaders, which costs one stream too many and nothing else.
//!
//! Pure: what was read and the time come in, what to do goes out.

use crate::units::{Span, Time};

/// How long a lease lasts without renewal; a leader's death is healed within it.
pub const LEASE: Span = Span::ms(2_000);
/// A leader renews when less than this is left: four tries at the tick of 50 ms remain in a stalled second.
const RENEW: Span = Span::ms(1_500);

/// The shared record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub owner: u64,
    pub until: Time,
}

/// What a VM does after reading the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Follow: another VM leads.
    Follow,
    /// Lead; nothing to write yet.
    Lead,
    /// Lead, and write this renewal under the version that was read.
    Renew(Lease),
    /// Follow, and write this claim under the version that was read.
    Claim(Lease),
}

/// Decides for VM `me`, whose id no other VM start of this process shares.
#[must_use]
pub fn step(held: Option<Lease>, me: u64, now: Time) -> Step {
    let mine = Lease { owner: me, until: now.plus(LEASE) };
    let Some(held) = held else { return Step::Claim(mine) };
    let left = held.until.since(now);
    // More than a full lease ahead was not written by this clock.
    let is_over = left == Span::ms(0) || left > LEASE;
    match (held.owner == me, is_over) {
        (true, _) if left >= RENEW && !is_over => Step::Lead,
        (true, false) => Step::Renew(mine),
        (_, true) => Step::Claim(mine),
        (false, false) => Step::Follow,
    }
}

impl Lease {
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let (owner, until) = bytes.split_at_mut(8);
        owner.copy_from_slice(&self.owner.to_le_bytes());
        until.copy_from_slice(&self.until.as_ms().to_le_bytes());
        bytes
    }

    /// `None` for anything but 16 bytes: nobody holds it.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (owner, until) = bytes.split_first_chunk::<8>()?;
        let until = u64::from_le_bytes(until.try_into().ok()?);
        Some(Self { owner: u64::from_le_bytes(*owner), until: Time::ms(until) })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use alloc::collections::BTreeMap;

    fn t(ms: u64) -> Time {
        Time::ms(ms)
    }

    fn lease(owner: u64, until_ms: u64) -> Lease {
        Lease { owner, until: t(until_ms) }
    }

    #[test]
    fn what_to_do_with_each_record() {
        let now = t(10_000);
        // A lease lasts 2000 ms and is renewed when less than 1500 ms are left.
        let mine = lease(1, 12_000);
        for (held, expected) in [
            (None, Step::Claim(mine)),
            (Some(lease(1, 12_000)), Step::Lead),
            (Some(lease(1, 11_500)), Step::Lead),
            (Some(lease(1, 11_499)), Step::Renew(mine)),
            (Some(lease(1, 10_001)), Step::Renew(mine)),
            (Some(lease(1, 10_000)), Step::Claim(mine)),
            (Some(lease(2, 12_000)), Step::Follow),
            (Some(lease(2, 10_001)), Step::Follow),
            (Some(lease(2, 10_000)), Step::Claim(mine)),
            (Some(lease(2, 9_000)), Step::Claim(mine)),
            // Further ahead than any lease reaches: not written by this clock.
            (Some(lease(2, 12_001)), Step::Claim(mine)),
            (Some(lease(1, 12_001)), Step::Claim(mine)),
        ] {
            assert_eq!(step(held, 1, now), expected, "{held:?}");
        }
    }

    #[test]
    fn records_survive_the_map_and_other_bytes_are_nobodys() {
        let held = lease(u64::MAX - 1, 77);
        assert_eq!(Lease::from_bytes(&held.to_bytes()), Some(held));
        for len in (0..40).filter(|len| *len != 16) {
            assert_eq!(Lease::from_bytes(&vec![0; len]), None, "{len} bytes");
        }
    }

    /// The map as Envoy has it: a write without a version, or to an absent key, always succeeds.
    #[derive(Default)]
    struct Map {
        value: Option<(Lease, u32)>,
    }

    impl Map {
        fn write(&mut self, lease: Lease, cas: Option<u32>) {
            match (self.value, cas) {
                (Some((_, current)), Some(cas)) if cas != current => {}
                (current, _) => self.value = Some((lease, current.map_or(1, |(_, c)| c + 1))),
            }
        }
    }

    /// Runs every VM's tick each 50 ms in the given order, reads first and writes last, which is the worst
    /// interleaving; returns who led at each tick.
    fn run(ticks: u64, alive: impl Fn(u64, u64) -> bool) -> BTreeMap<u64, Vec<u64>> {
        let mut map = Map::default();
        let mut leaders = BTreeMap::<u64, Vec<u64>>::new();
        for tick in 0..ticks {
            let now = t(1_000 + tick * 50);
            let read = map.value;
            for vm in (1..=5).filter(|vm| alive(*vm, tick)) {
                match step(read.map(|(held, _)| held), vm, now) {
                    Step::Follow => {}
                    Step::Lead => leaders.entry(tick).or_default().push(vm),
                    Step::Renew(mine) => {
                        leaders.entry(tick).or_default().push(vm);
                        map.write(mine, read.map(|(_, cas)| cas));
                    }
                    Step::Claim(mine) => map.write(mine, read.map(|(_, cas)| cas)),
                }
            }
        }
        leaders
    }

    #[test]
    fn five_vms_that_start_at_once_have_one_leader() {
        let leaders = run(200, |_, _| true);
        assert_eq!(
            leaders.len(),
            199,
            "nobody leads at the tick of the first claim, then always one"
        );
        assert!(leaders.values().all(|at_once| at_once.len() == 1));
    }

    #[test]
    fn a_dead_leader_is_replaced_within_one_lease() {
        let first = run(20, |_, _| true).values().next().unwrap()[0];
        let leaders = run(200, |vm, tick| vm != first || tick < 20);
        let next = leaders.iter().find(|(_, at_once)| at_once[0] != first).expect("a successor");
        // Last tick alive is 19; the lease then ends at most 2000 ms (40 ticks) later, one tick to claim.
        assert!(*next.0 <= 19 + LEASE.as_ms() / 50 + 2, "{next:?}");
        assert!(leaders.values().all(|at_once| at_once.len() == 1));
    }

    #[test]
    fn a_stalled_leader_that_wakes_up_follows() {
        let first = run(20, |_, _| true).values().next().unwrap()[0];
        let leaders = run(200, |vm, tick| vm != first || !(20..100).contains(&tick));
        assert!(leaders.values().all(|at_once| at_once.len() == 1));
        assert_ne!(leaders[&150][0], first);
        assert_eq!(LEASE, Span::ms(2_000));
    }
}
