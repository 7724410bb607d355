//! What a finished request says about its endpoint.
//!
//! | seen | outcome |
//! |---|---|
//! | 2xx, 3xx, 4xx except 408 and 429, complete | `Ok` |
//! | 429; 503 with `retry-after` or an overload marker; Envoy's own overflow, rate limit, missing route | `Busy` |
//! | 5xx otherwise; connect failure; reset, cut, time limit | `Broken` |
//! | client went away; 408; ended with no sign at all | `Cancelled` |
//!
//! gRPC statuses count like their HTTP cousins. `Busy` and `Cancelled` leave the success rate alone:
//! a full endpoint is not a broken one, and an impatient client says nothing about it.

/// The four outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    Ok,
    Busy,
    Broken,
    Cancelled,
}

impl Outcome {
    pub const ALL: [Self; 4] = [Self::Ok, Self::Busy, Self::Broken, Self::Cancelled];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Busy => "busy",
            Self::Broken => "broken",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Envoy's response flags, the bit mask of the property `response.flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u64);

impl Flags {
    pub const NO_HEALTHY_UPSTREAM: Self = Self(0x2);
    pub const UPSTREAM_REQUEST_TIMEOUT: Self = Self(0x4);
    pub const LOCAL_RESET: Self = Self(0x8);
    pub const UPSTREAM_REMOTE_RESET: Self = Self(0x10);
    pub const UPSTREAM_CONNECTION_FAILURE: Self = Self(0x20);
    pub const UPSTREAM_CONNECTION_TERMINATION: Self = Self(0x40);
    pub const UPSTREAM_OVERFLOW: Self = Self(0x80);
    pub const NO_ROUTE: Self = Self(0x100);
    pub const RATE_LIMITED: Self = Self(0x800);
    pub const DOWNSTREAM_CONNECTION_TERMINATION: Self = Self(0x4000);
    pub const STREAM_IDLE_TIMEOUT: Self = Self(0x1_0000);
    pub const UPSTREAM_MAX_DURATION: Self = Self(0x8_0000);
    pub const UPSTREAM_PROTOCOL_ERROR: Self = Self(0x80_0000);
    pub const NO_CLUSTER: Self = Self(0x100_0000);
    pub const DOWNSTREAM_REMOTE_RESET: Self = Self(0x1000_0000);

    /// The endpoint or the way to it failed.
    const BROKEN: Self = Self(
        Self::UPSTREAM_REQUEST_TIMEOUT.0
            | Self::LOCAL_RESET.0
            | Self::UPSTREAM_REMOTE_RESET.0
            | Self::UPSTREAM_CONNECTION_FAILURE.0
            | Self::UPSTREAM_CONNECTION_TERMINATION.0
            | Self::STREAM_IDLE_TIMEOUT.0
            | Self::UPSTREAM_MAX_DURATION.0
            | Self::UPSTREAM_PROTOCOL_ERROR.0,
    );
    /// Envoy refused on its own: no endpoint was asked.
    const NOT_ASKED: Self = Self(
        Self::NO_HEALTHY_UPSTREAM.0
            | Self::UPSTREAM_OVERFLOW.0
            | Self::NO_ROUTE.0
            | Self::RATE_LIMITED.0
            | Self::NO_CLUSTER.0,
    );
    const CLIENT_GONE: Self =
        Self(Self::DOWNSTREAM_CONNECTION_TERMINATION.0 | Self::DOWNSTREAM_REMOTE_RESET.0);

    #[must_use]
    pub const fn any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }

    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// How the response stream ended, as far as the filter saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ending {
    /// With its end marker: end of stream on headers, body or trailers.
    Complete,
    /// The stream went away before that.
    #[default]
    Cut,
}

/// Whether a 503 said that the endpoint is merely full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Marker {
    #[default]
    None,
    /// `retry-after` or an overload header was there.
    Overload,
}

/// All that is known about a response when its request ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// `None` when no response headers came.
    pub status: Option<u16>,
    pub marker: Marker,
    /// `grpc-status`, when there was one.
    pub grpc_status: Option<u32>,
    pub flags: Flags,
    pub ending: Ending,
}

/// The outcome of a request.
#[must_use]
pub fn classify(seen: &Seen) -> Outcome {
    if seen.flags.any(Flags::NOT_ASKED) {
        return Outcome::Busy;
    }
    // A failed endpoint may make the client leave too, so the endpoint's flags come first.
    if seen.flags.any(Flags::BROKEN) {
        return Outcome::Broken;
    }
    let Some(status) = seen.status else {
        // No answer and no flag that blames the endpoint: the client left, or the stream was dropped.
        return Outcome::Cancelled;
    };
    let by_status = by_status(status, seen.marker);
    if by_status != Outcome::Ok {
        return by_status;
    }
    if seen.flags.any(Flags::CLIENT_GONE) {
        return Outcome::Cancelled;
    }
    match seen.grpc_status.map(by_grpc_status) {
        Some(outcome) if outcome != Outcome::Ok => outcome,
        // Success headers without an end: cut by whoever; without a flag nobody can be blamed.
        _ if seen.ending == Ending::Cut => Outcome::Cancelled,
        _ => Outcome::Ok,
    }
}

const fn by_status(status: u16, marker: Marker) -> Outcome {
    match (status, marker) {
        (429, _) | (503, Marker::Overload) => Outcome::Busy,
        (408, _) => Outcome::Cancelled,
        (100..=499, _) => Outcome::Ok,
        // 5xx, and numbers that are no status at all.
        _ => Outcome::Broken,
    }
}

const fn by_grpc_status(status: u32) -> Outcome {
    match status {
        // CANCELLED
        1 => Outcome::Cancelled,
        // RESOURCE_EXHAUSTED
        8 => Outcome::Busy,
        // DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, DATA_LOSS
        4 | 13 | 14 | 15 => Outcome::Broken,
        _ => Outcome::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(status: u16) -> Seen {
        Seen { status: Some(status), ending: Ending::Complete, ..Seen::default() }
    }

    #[test]
    fn statuses() {
        for (status, expected) in [
            (200, Outcome::Ok),
            (204, Outcome::Ok),
            (302, Outcome::Ok),
            (400, Outcome::Ok),
            (404, Outcome::Ok),
            (407, Outcome::Ok),
            (408, Outcome::Cancelled),
            (409, Outcome::Ok),
            (428, Outcome::Ok),
            (429, Outcome::Busy),
            (499, Outcome::Ok),
            (500, Outcome::Broken),
            (502, Outcome::Broken),
            (503, Outcome::Broken),
            (504, Outcome::Broken),
            (599, Outcome::Broken),
            (0, Outcome::Broken),
            (u16::MAX, Outcome::Broken),
        ] {
            assert_eq!(classify(&http(status)), expected, "{status}");
        }
    }

    #[test]
    fn a_marker_makes_503_busy_and_no_other_5xx() {
        let marked = |status| Seen { marker: Marker::Overload, ..http(status) };
        assert_eq!(classify(&marked(503)), Outcome::Busy);
        assert_eq!(classify(&marked(500)), Outcome::Broken);
        assert_eq!(classify(&marked(200)), Outcome::Ok);
    }

    #[test]
    fn grpc_statuses() {
        for (grpc, expected) in [
            (0, Outcome::Ok),
            (1, Outcome::Cancelled),
            (3, Outcome::Ok),
            (4, Outcome::Broken),
            (5, Outcome::Ok),
            (8, Outcome::Busy),
            (13, Outcome::Broken),
            (14, Outcome::Broken),
            (15, Outcome::Broken),
            (16, Outcome::Ok),
            (u32::MAX, Outcome::Ok),
        ] {
            let seen = Seen { grpc_status: Some(grpc), ..http(200) };
            assert_eq!(classify(&seen), expected, "{grpc}");
        }
    }

    #[test]
    fn flags() {
        for (flags, status, expected) in [
            (Flags::UPSTREAM_CONNECTION_FAILURE, Some(503), Outcome::Broken),
            (Flags::UPSTREAM_REMOTE_RESET, Some(503), Outcome::Broken),
            (Flags::UPSTREAM_CONNECTION_TERMINATION, Some(200), Outcome::Broken),
            (Flags::UPSTREAM_PROTOCOL_ERROR, Some(502), Outcome::Broken),
            (Flags::UPSTREAM_REQUEST_TIMEOUT, Some(504), Outcome::Broken),
            (Flags::STREAM_IDLE_TIMEOUT, None, Outcome::Broken),
            (Flags::UPSTREAM_OVERFLOW, Some(503), Outcome::Busy),
            (Flags::NO_HEALTHY_UPSTREAM, Some(503), Outcome::Busy),
            (Flags::RATE_LIMITED, Some(429), Outcome::Busy),
            (Flags::DOWNSTREAM_CONNECTION_TERMINATION, None, Outcome::Cancelled),
            (Flags::DOWNSTREAM_REMOTE_RESET, Some(200), Outcome::Cancelled),
            (Flags::DOWNSTREAM_CONNECTION_TERMINATION, Some(500), Outcome::Broken),
            (Flags(0), None, Outcome::Cancelled),
            (Flags(0), Some(200), Outcome::Ok),
            // Bits without a meaning here change nothing.
            (Flags(1 << 63), Some(200), Outcome::Ok),
        ] {
            let seen = Seen { status, flags, ending: Ending::Complete, ..Seen::default() };
            assert_eq!(classify(&seen), expected, "{flags:?} {status:?}");
        }
    }

    #[test]
    fn client_and_endpoint_gone_together_blames_the_endpoint() {
        let flags =
            Flags::DOWNSTREAM_CONNECTION_TERMINATION.with(Flags::UPSTREAM_CONNECTION_TERMINATION);
        assert_eq!(classify(&Seen { flags, ..http(200) }), Outcome::Broken);
    }

    #[test]
    fn success_headers_without_an_end_are_not_counted() {
        let seen = Seen { ending: Ending::Cut, ..http(200) };
        assert_eq!(classify(&seen), Outcome::Cancelled);
        let seen = Seen { ending: Ending::Cut, ..http(500) };
        assert_eq!(classify(&seen), Outcome::Broken);
    }
}
