//! The GPU types that can be simulated.
//!
//! Speed is relative to an A100: the figures are the ratios of published serving throughput for one
//! small model, rounded; they only have to be unlike each other. Every figure can be overridden for
//! a GPU in the configuration.

#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) memory_mib: u64,
    pub(crate) speed: f64,
    pub(crate) slots: usize,
    /// Prompt tokens a second at speed 1.
    pub(crate) prefill_tokens_per_s: f64,
    /// Output tokens a second of one request at speed 1.
    pub(crate) decode_tokens_per_s: f64,
    /// Slow-down of a request by every other one in its batch.
    pub(crate) beta: f64,
    pub(crate) power_idle_w: f64,
    pub(crate) power_limit_w: f64,
    pub(crate) sm_clock_max_mhz: f64,
}

const A100: Profile = Profile {
    name: "a100-80gb",
    memory_mib: 81_920,
    speed: 1.0,
    slots: 16,
    prefill_tokens_per_s: 8_000.0,
    decode_tokens_per_s: 80.0,
    beta: 0.02,
    power_idle_w: 60.0,
    power_limit_w: 400.0,
    sm_clock_max_mhz: 1_410.0,
};

const PROFILES: [Profile; 6] = [
    A100,
    Profile {
        name: "h100-80gb",
        memory_mib: 81_559,
        speed: 1.8,
        power_limit_w: 700.0,
        sm_clock_max_mhz: 1_980.0,
        ..A100
    },
    Profile {
        name: "a10-24gb",
        memory_mib: 23_028,
        speed: 0.5,
        slots: 8,
        power_idle_w: 20.0,
        power_limit_w: 150.0,
        sm_clock_max_mhz: 1_695.0,
        ..A100
    },
    Profile {
        name: "l4-24gb",
        memory_mib: 23_034,
        speed: 0.45,
        slots: 8,
        power_idle_w: 15.0,
        power_limit_w: 72.0,
        sm_clock_max_mhz: 2_040.0,
        ..A100
    },
    Profile {
        name: "v100-32gb",
        memory_mib: 32_768,
        speed: 0.55,
        slots: 8,
        power_idle_w: 40.0,
        power_limit_w: 300.0,
        sm_clock_max_mhz: 1_530.0,
        ..A100
    },
    Profile {
        name: "t4-16gb",
        memory_mib: 15_360,
        speed: 0.25,
        slots: 4,
        power_idle_w: 10.0,
        power_limit_w: 70.0,
        sm_clock_max_mhz: 1_590.0,
        ..A100
    },
];

/// Bytes of KV cache a token takes in a small model: 32 layers of 2 * 1,024 values of 2 bytes.
const KV_BYTES_PER_TOKEN: u64 = 131_072;
/// Share of the memory that the KV cache may have.
const KV_MEMORY_RATIO: f64 = 0.7;

impl Profile {
    pub(crate) fn named(name: &str) -> Option<Self> {
        PROFILES.into_iter().find(|profile| profile.name == name)
    }

    pub(crate) fn names() -> String {
        PROFILES.map(|profile| profile.name).join(", ")
    }

    pub(crate) fn kv_tokens(&self) -> u64 {
        let kv_bytes = (self.memory_mib * 1_048_576) as f64 * KV_MEMORY_RATIO;
        kv_bytes as u64 / KV_BYTES_PER_TOKEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for profile in PROFILES {
            assert_eq!(Profile::named(profile.name).map(|p| p.speed), Some(profile.speed));
        }
        assert!(Profile::named("no-such-gpu").is_none());
    }

    #[test]
    fn kv_tokens_follow_memory() {
        // 81,920 MiB * 0.7 / 131,072 B = 458,752.
        assert_eq!(A100.kv_tokens(), 458_752);
    }
}
