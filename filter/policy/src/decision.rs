//! What happens to a request, and why: the values that reach metrics, logs and headers.

use alloc::string::String;

use crate::config::Mode;

/// The decision on one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Leave the request alone; Envoy's own load balancer decides.
    Pass {
        /// Index of the service in the configuration, when one took the request.
        service: Option<usize>,
        reason: PassReason,
    },
    /// Send the request to the first endpoint of `list`, retries to the next ones.
    Steer {
        service: usize,
        ticket: Ticket,
        /// `ip:port,ip:port,…`, first try first, for the steering header.
        list: String,
        /// Retries that Envoy may make.
        retries: u8,
        reason: PickReason,
        /// In [`Mode::Observe`] set no header; the ticket is tracked all the same.
        mode: Mode,
    },
    /// Answer without asking an endpoint.
    Answer { service: usize, status: u16, reason: AnswerReason, retry_after_s: u32 },
}

/// Names one open request of a [`crate::gate::Gate`]; give it back with `on_end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The value of metric labels and log fields.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

reasons! {
    /// Why a request is left alone.
    PassReason {
        /// No service takes it.
        NoService = "no_service",
        /// The control plane has not described the service yet.
        NoSnapshot = "no_snapshot",
        /// The control plane knows no endpoint of the service.
        NoEndpoints = "no_endpoints",
        /// All endpoints were down when last heard of, which is too long ago to refuse a request.
        DownLongAgo = "down_long_ago",
        /// All endpoints are down; only observing.
        DownObserved = "down_observed",
        /// Every endpoint of the earlier picker's list is down or draining: its list stays.
        ListKept = "list_kept",
    }
}

reasons! {
    /// How the endpoint was picked.
    PickReason {
        /// Water-filling with slots.
        LiSlots = "li_slots",
        /// Water-filling without slots: some are unknown, or reports are old against the service time.
        LiPlain = "li_plain",
        /// Reported counts are unknown or too old: own counts between two endpoints.
        OwnCounts = "own_counts",
        /// Data is old: as `own_counts`, by the capacity of the GPU type.
        TypeCapacity = "type_capacity",
        /// Data is very old: as `own_counts`, all endpoints alike.
        EqualWeights = "equal_weights",
        /// Smooth round robin by capacity times free memory.
        FreeMemory = "free_memory",
        /// Random by capacity.
        Weighted = "weighted",
        /// The less loaded of two.
        LeastRequest = "least_request",
        /// Only one endpoint can take it.
        Only = "only",
        /// Too little healthy capacity: soft gates and success rates are ignored.
        Panic = "panic",
        /// All that is not down is draining.
        Draining = "draining",
        /// An earlier picker's list in our order.
        Reordered = "reordered",
    }
}

reasons! {
    /// Why Tidegate itself answers.
    AnswerReason {
        /// Every endpoint of the service is down.
        NoEndpoints = "no_endpoints",
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn reason_names_are_distinct_label_values() {
        let check = |names: alloc::vec::Vec<&str>| {
            let distinct: BTreeSet<_> = names.iter().collect();
            assert_eq!(distinct.len(), names.len());
            for name in names {
                assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            }
        };
        check(PassReason::ALL.iter().map(|r| r.as_str()).collect());
        check(PickReason::ALL.iter().map(|r| r.as_str()).collect());
        check(AnswerReason::ALL.iter().map(|r| r.as_str()).collect());
    }
}
