//! Envoy's side: the only file that calls `proxy_wasm::hostcalls`.
//!
//! Bytes in, typed values out. Clock and entropy enter here. Nothing here panics by itself, but the
//! SDK does, on every host status it does not expect and on text that is not UTF-8. So this file uses
//! no getter of text or of whole header maps, and each function names the phase in which the host
//! answers it with a status that the SDK passes on; callers keep to that phase.

use core::time::Duration;
use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType, MetricType};
use std::time::UNIX_EPOCH;
use tidegate_policy::units::Time;

/// Milliseconds on the host's steady clock, which all VMs of one Envoy share and nobody sets back.
pub(crate) fn now() -> Time {
    Time::ms(steady_ns().unwrap_or_else(wall_ns) / 1_000_000)
}

/// Differs between machines, processes and VM starts: VMs that start in the same nanosecond take
/// different numbers from a shared counter.
pub(crate) fn entropy() -> u64 {
    const KEY: &str = "tidegate.1.starts";
    let mut mine = 0;
    for _ in 0..16 {
        let (value, cas) = shared(KEY);
        mine = value.try_into().map_or(0, u64::from_le_bytes).wrapping_add(1);
        if share(KEY, &mine.to_le_bytes(), cas) {
            break;
        }
    }
    wall_ns() ^ steady_ns().unwrap_or_default().rotate_left(32) ^ mine.rotate_right(16)
}

/// Nanoseconds since 1970; any phase.
fn wall_ns() -> u64 {
    let time = hostcalls::get_current_time().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    time.map_or(0, |t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(target_arch = "wasm32")]
fn steady_ns() -> Option<u64> {
    #[expect(unsafe_code, reason = "neither the SDK nor std gives the steady clock as a number")]
    mod wasi {
        #[link(wasm_import_module = "wasi_snapshot_preview1")]
        unsafe extern "C" {
            fn clock_time_get(clock: u32, precision_ns: u64, result_ns: *mut u64) -> u32;
        }
        pub(super) fn monotonic_ns() -> Option<u64> {
            const MONOTONIC: u32 = 1;
            let mut result_ns = 0_u64;
            // SAFETY: the host writes 8 bytes to the pointer, which is valid and aligned for a u64 and
            // outlives the call; it keeps no copy of the pointer.
            let errno = unsafe { clock_time_get(MONOTONIC, 1, &raw mut result_ns) };
            (errno == 0).then_some(result_ns)
        }
    }
    wasi::monotonic_ns()
}

#[cfg(not(target_arch = "wasm32"))]
fn steady_ns() -> Option<u64> {
    None
}

/// A request header, in the request-headers callback.
pub(crate) fn request_header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name).ok().flatten()
}

/// A response header, in the response-headers callback.
pub(crate) fn response_header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpResponseHeaders, name).ok().flatten()
}

/// A response trailer, in the response-trailers callback.
pub(crate) fn response_trailer(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpResponseTrailers, name).ok().flatten()
}

/// Replaces or, with `None`, removes all copies of a request header, in the request-headers callback.
pub(crate) fn put_request_header(name: &str, value: Option<&[u8]>) -> bool {
    hostcalls::set_map_value_bytes(MapType::HttpRequestHeaders, name, value).is_ok()
}

/// A property of the request, in any of its callbacks.
pub(crate) fn property(path: &[&str]) -> Option<Vec<u8>> {
    hostcalls::get_property(path.to_vec()).ok().flatten()
}

/// A whole number among the properties: the host gives 8 bytes, little-endian.
pub(crate) fn number(path: &[&str]) -> Option<u64> {
    let bytes = property(path)?;
    Some(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?))
}

/// Answers the request in place of the endpoint, in the request-headers callback.
pub(crate) fn answer(status: u16, headers: Vec<(&str, &str)>, body: &str) -> bool {
    hostcalls::send_http_response(status.into(), headers, Some(body.as_bytes())).is_ok()
}

/// A version of a shared value; `None` where the key was never written.
pub(crate) type Cas = Option<u32>;

/// A value that all VMs of this `vm_id` share; any phase. Absent reads as empty.
pub(crate) fn shared(key: &str) -> (Vec<u8>, Cas) {
    let (value, cas) = hostcalls::get_shared_data(key).unwrap_or_default();
    (value.unwrap_or_default(), cas)
}

/// Writes a shared value: if `cas` is given, only while the key still has that version.
pub(crate) fn share(key: &str, value: &[u8], cas: Cas) -> bool {
    hostcalls::set_shared_data(key, Some(value), cas).is_ok()
}

/// The plugin configuration, in the configure callback.
pub(crate) fn configuration(size: usize) -> Vec<u8> {
    hostcalls::get_buffer(BufferType::PluginConfiguration, 0, size)
        .ok()
        .flatten()
        .unwrap_or_default()
}

/// The received gRPC message, in its callback.
pub(crate) fn message(size: usize) -> Vec<u8> {
    hostcalls::get_buffer(BufferType::GrpcReceiveBuffer, 0, size).ok().flatten().unwrap_or_default()
}

/// Opens a gRPC stream, in the tick callback; `upstream` is a serialised `GrpcService`, never empty.
pub(crate) fn open_stream(upstream: &str, service: &str, method: &str) -> Option<u32> {
    hostcalls::open_grpc_stream(upstream, service, method, Vec::new()).ok()
}

/// Sends one message on a stream that is open, in tick and gRPC callbacks.
pub(crate) fn send(stream: u32, message: &[u8]) -> bool {
    hostcalls::send_grpc_stream_message(stream, Some(message), false).is_ok()
}

/// Resets a stream; no callback follows. Also where it is gone already.
pub(crate) fn cancel(stream: u32) -> bool {
    hostcalls::cancel_grpc_stream(stream).is_ok()
}

/// Asks for the tick callback, in the configure callback.
pub(crate) fn tick_every(period: Duration) -> bool {
    hostcalls::set_tick_period(period).is_ok()
}

/// The id of a counter or gauge, defined when new; any phase.
pub(crate) fn metric(kind: MetricType, name: &str) -> Option<u32> {
    hostcalls::define_metric(kind, name).ok()
}

pub(crate) fn count(metric: u32, by: i64) -> bool {
    hostcalls::increment_metric(metric, by).is_ok()
}

pub(crate) fn gauge(metric: u32, value: u64) -> bool {
    hostcalls::record_metric(metric, value).is_ok()
}
