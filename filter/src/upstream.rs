//! How the filter names the control plane to Envoy: a serialised `envoy.config.core.v3.GrpcService`.
//!
//! A plain cluster name would do for Envoy, but it becomes the stream's `:authority` too, and a name like
//! `outbound|9000||cp.ns.svc.cluster.local` is no authority: the peer resets the stream. The message
//! carries both. The SDK takes the name as text, so the bytes must be UTF-8: every length below 128 is
//! one ASCII byte, and the one length that may be larger, that of the inner message, is padded by an
//! unknown field until its varint reads as a two-byte character and NUL, which protobuf accepts as a
//! varint with a leading zero group.

/// Longest cluster name and longest authority: lengths up to here are one ASCII byte.
pub use tidegate_policy::config::PLANE_BYTES_MAX as NAME_BYTES_MAX;

/// Field numbers with wire type 2, and the unknown one that pads.
const GRPC_SERVICE_ENVOY_GRPC: u8 = 1 << 3 | 2;
const ENVOY_GRPC_CLUSTER_NAME: u8 = 1 << 3 | 2;
const ENVOY_GRPC_AUTHORITY: u8 = 2 << 3 | 2;
const PADDING: u8 = 15 << 3 | 2;

/// The message as text; `None` when a name is empty or longer than [`NAME_BYTES_MAX`].
#[must_use]
pub fn grpc_service(cluster: &str, authority: &str) -> Option<String> {
    let mut inner = Vec::with_capacity(4 * NAME_BYTES_MAX);
    for (tag, name) in [(ENVOY_GRPC_CLUSTER_NAME, cluster), (ENVOY_GRPC_AUTHORITY, authority)] {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return None;
        }
        inner.extend([tag, u8::try_from(name.len()).ok()?]);
        inner.extend(name.as_bytes());
    }
    if inner.len() >= 128 {
        // The first byte of the varint becomes 0xC2..=0xDF, which opens a two-byte character.
        let after_header = (inner.len() + 2) % 128;
        let fill = if after_header <= 95 {
            66_usize.saturating_sub(after_header)
        } else {
            128 + 66 - after_header
        };
        inner.extend([PADDING, u8::try_from(fill).ok()?]);
        inner.resize(inner.len() + fill, b' ');
    }
    let mut bytes = vec![GRPC_SERVICE_ENVOY_GRPC];
    match u8::try_from(inner.len()) {
        Ok(len) if len < 128 => bytes.push(len),
        _ => {
            let low = u8::try_from(inner.len() % 128).ok()?;
            let high = u8::try_from(inner.len() / 128).ok()?;
            bytes.extend([0x80 | low, 0x80 | high, 0]);
        }
    }
    bytes.extend(inner);
    String::from_utf8(bytes).ok()
}
