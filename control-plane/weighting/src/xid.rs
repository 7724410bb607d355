//! What an Xid event says about the GPU, as data.
//!
//! Most Xids are the application's fault: its CUDA context is dead, the GPU is healthy. Treating
//! those as fatal takes whole clusters out (hundreds of false events in hours on real fleets), and
//! device plugins that never take a verdict back make a GPU unusable for ever. So each code has one
//! of a few verdicts, and `health.rs` gives each verdict a time or an event that clears it.
//! Codes follow NVIDIA's Xid catalogue for Ampere and later.

/// What one event means for the GPU that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum XidVerdict {
    /// Says nothing about health, or only that another field must be read (154 → recovery action).
    Ignore,
    /// The application's fault; three in five minutes halve the gate.
    Application,
    /// ECC error that the hardware contained: halves the gate for 10 min, a reset is due.
    Contained,
    /// A row will be remapped at the next reset: halves the gate for 10 min, a reset is due.
    RemapPending,
    /// Halves the gate for 10 min.
    Degraded,
    /// Degraded; a second one within 10 min is fatal.
    FatalWhenRepeated,
    /// NVLink: fatal for an endpoint that spans GPUs, degraded for one that does not.
    Link,
    /// Takes the GPU out until it is seen to be reset.
    Fatal,
    /// Fell off the bus: fatal, and the node needs a reboot.
    BusLost,
}

/// Code and verdict, sorted by code. What is not listed counts as `Application`.
pub const TABLE: &[(u32, XidVerdict)] = {
    use XidVerdict::{
        Application, BusLost, Contained, Degraded, Fatal, FatalWhenRepeated, Ignore, Link,
        RemapPending,
    };
    &[
        (8, Application),
        (11, Application),
        (13, Application), // graphics engine exception
        (25, Application),
        (31, Application), // memory page fault
        (32, Application),
        (37, Ignore),
        (38, Ignore),
        (39, Application),
        (40, Application),
        (41, Application),
        (43, Application), // channel stopped after an application fault
        (44, Ignore),
        (45, Application), // clean-up after another error; storms of it are common
        (46, Fatal),       // GPU stopped processing
        (48, Fatal),       // double-bit ECC, unless a 94 says that it was contained
        (54, Degraded),    // auxiliary power missing
        (60, Application),
        (62, Fatal), // internal micro-controller halt
        (63, RemapPending),
        (64, Fatal), // row remap failed
        (66, Ignore),
        (67, Ignore),
        (68, Application),
        (69, Application),
        (74, Link),
        (79, BusLost),
        (92, Degraded), // high rate of single-bit errors
        (93, Ignore),
        (94, Contained),
        (95, Fatal), // uncontained ECC error
        (106, Ignore),
        (107, Ignore),
        (109, FatalWhenRepeated), // context switch timeout
        (110, Fatal),
        (119, Fatal), // GSP RPC timeout
        (120, Fatal), // GSP error
        (121, Ignore),
        (136, Fatal), // link training failed
        (137, Ignore),
        (140, Fatal), // unrecovered ECC error
        (141, Ignore),
        (142, Degraded),
        (143, Fatal), // initialisation failed
        (144, Link),
        (145, Link),
        (146, Link),
        (147, Link),
        (148, Link),
        (149, Link),
        (150, Link),
        (151, Fatal), // key rotation: the VM must restart
        (152, Ignore),
        (153, Ignore),
        (154, Ignore), // recovery action changed: the field itself is obeyed
        (155, Link),
        (156, Fatal),
        (157, Ignore),
        (158, Fatal),
        (160, Ignore),
        (161, Ignore),
    ]
};

/// The verdict on a code; the operator's overrides come first.
#[must_use]
pub fn verdict(code: u32, overrides: &[(u32, XidVerdict)]) -> XidVerdict {
    if let Some((_, verdict)) = overrides.iter().find(|(c, _)| *c == code) {
        return *verdict;
    }
    TABLE
        .binary_search_by_key(&code, |(c, _)| *c)
        .ok()
        .and_then(|at| TABLE.get(at))
        .map_or(XidVerdict::Application, |(_, verdict)| *verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_without_doubles() {
        assert!(TABLE.windows(2).all(|w| w[0].0 < w[1].0));
    }

    #[test]
    fn verdicts_follow_the_catalogue() {
        let check = |codes: &[u32], expected| {
            for code in codes {
                assert_eq!(verdict(*code, &[]), expected, "xid {code}");
            }
        };
        check(&[13, 31, 32, 43, 45, 68, 69], XidVerdict::Application);
        check(&[46, 48, 62, 64, 95, 119, 120, 136, 140, 143, 156, 158], XidVerdict::Fatal);
        check(&[74, 144, 150, 155], XidVerdict::Link);
        check(&[79], XidVerdict::BusLost);
        check(&[94], XidVerdict::Contained);
        check(&[63], XidVerdict::RemapPending);
        check(&[92], XidVerdict::Degraded);
        check(&[109], XidVerdict::FatalWhenRepeated);
        check(&[37, 66, 137, 154], XidVerdict::Ignore);
    }

    #[test]
    fn unknown_codes_are_the_applications() {
        for code in [0, 1, 12, 159, 162, 9_999, u32::MAX] {
            assert_eq!(verdict(code, &[]), XidVerdict::Application);
        }
    }

    #[test]
    fn overrides_win() {
        let overrides = [(13, XidVerdict::Fatal), (79, XidVerdict::Ignore)];
        assert_eq!(verdict(13, &overrides), XidVerdict::Fatal);
        assert_eq!(verdict(79, &overrides), XidVerdict::Ignore);
        assert_eq!(verdict(48, &overrides), XidVerdict::Fatal);
    }
}
