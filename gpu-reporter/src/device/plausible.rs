//! What a figure can be. A driver's mistake is one unknown figure, never a report that is refused.
//!
//! Bounds are far above any GPU, and not above what the control plane takes.

use crate::sample::Memory;

/// Longest name or text of a GPU, in bytes.
const TEXT_BYTES_MAX: usize = 64;

pub(super) fn percent(value: u32) -> Option<u32> {
    (value <= 100).then_some(value)
}

pub(super) fn degrees(value: u32) -> Option<u32> {
    (value <= 200).then_some(value)
}

pub(super) fn milliwatts(value: u32) -> Option<u32> {
    (value <= 10_000_000).then_some(value)
}

pub(super) fn megahertz(value: u32) -> Option<u32> {
    (value <= 100_000).then_some(value)
}

/// 32 is NVML's "unknown".
pub(super) fn performance_state(value: u32) -> Option<u32> {
    (value <= 15).then_some(value)
}

pub(super) fn link_width(value: u32) -> Option<u32> {
    (1..=64).contains(&value).then_some(value)
}

pub(super) fn link_generation(value: u32) -> Option<u32> {
    (1..=32).contains(&value).then_some(value)
}

pub(super) fn bytes_per_second(value: u64) -> Option<u64> {
    (value <= 1 << 50).then_some(value)
}

/// No part is larger than the whole, and no memory larger than a pebibyte.
pub(super) fn memory(memory: Memory) -> Memory {
    let total_bytes = memory.total_bytes.filter(|total| *total <= 1 << 50);
    let part = |value: Option<u64>| value.filter(|part| *part <= total_bytes.unwrap_or(1 << 50));
    Memory {
        total_bytes,
        free_bytes: part(memory.free_bytes),
        used_bytes: part(memory.used_bytes),
        reserved_bytes: part(memory.reserved_bytes),
    }
}

/// A name that is safe in a label and a URL: other characters become `_`.
pub(super) fn name(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-/:|".contains(c);
    text.chars().take(TEXT_BYTES_MAX).map(|c| if safe(c) { c } else { '_' }).collect()
}

/// A text for people, cut between characters.
pub(super) fn text(text: &str) -> String {
    let mut kept = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if kept.len() + c.len_utf8() > TEXT_BYTES_MAX {
            break;
        }
        kept.push(c);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_itself_is_plausible_and_one_more_is_not() {
        assert_eq!((percent(100), percent(101)), (Some(100), None));
        assert_eq!((degrees(200), degrees(201)), (Some(200), None));
        assert_eq!((performance_state(15), performance_state(32)), (Some(15), None));
        assert_eq!((link_width(64), link_width(65), link_width(0)), (Some(64), None, None));
        assert_eq!((milliwatts(10_000_000), milliwatts(10_000_001)), (Some(10_000_000), None));
        assert_eq!((megahertz(100_000), megahertz(100_001)), (Some(100_000), None));
    }

    #[test]
    fn a_part_larger_than_the_whole_is_unknown() {
        let odd = Memory {
            total_bytes: Some(10),
            free_bytes: Some(11),
            used_bytes: Some(10),
            reserved_bytes: None,
        };
        assert_eq!(memory(odd), Memory { free_bytes: None, ..odd });
    }

    #[test]
    fn names_and_texts_fit_a_label() {
        assert_eq!(name("MIG-GPU-a/7/0"), "MIG-GPU-a/7/0");
        assert_eq!(name("GPU \"x\"\n"), "GPU__x__");
        assert_eq!(name(&"é".repeat(100)).len(), 64);
        assert_eq!(text(&"é".repeat(40)).len(), 64);
        assert_eq!(text("a\u{7}b"), "ab");
    }
}
