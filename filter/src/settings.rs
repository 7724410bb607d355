//! From the bytes of the plugin configuration to the settings in force.

use tidegate_policy::config::{self, Config};
use tidegate_strict::Value;

/// Longer configurations are refused before they are read.
pub const SETTINGS_BYTES_MAX: usize = 256 << 10;
/// The error text goes into a log line and to the control plane.
const ERROR_BYTES_MAX: usize = 2_048;

/// Reads the configuration.
///
/// # Errors
/// All that is wrong with it, in one line.
pub fn read(bytes: &[u8]) -> Result<Config, String> {
    if bytes.len() > SETTINGS_BYTES_MAX {
        return Err(format!("longer than {SETTINGS_BYTES_MAX} bytes"));
    }
    let value =
        serde_json::from_slice::<Value>(bytes).map_err(|e| shortened(format!("not JSON: {e}")))?;
    config::parse(&value).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        shortened(lines.join("; "))
    })
}

fn shortened(mut text: String) -> String {
    if text.len() > ERROR_BYTES_MAX {
        text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
        text.push('…');
    }
    text
}

/// Separates the shared state of configurations that want different things of the control plane, which
/// live side by side in one Envoy while one replaces the other; FNV-1a.
#[must_use]
pub fn fingerprint(config: &Config) -> u64 {
    let plane = &config.control_plane;
    let names = config.services.iter().map(|service| service.name.as_str());
    [plane.cluster.as_str(), plane.authority.as_str()]
        .into_iter()
        .chain(names)
        .flat_map(|text| text.bytes().chain([0]))
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}
