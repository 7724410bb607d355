//! Scripted faults: what a GPU does wrong, from when and until when.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    #[default]
    None,
    /// Answers 500 at once.
    #[serde(rename = "error_500")]
    Error500,
    /// Answers 503 at once.
    #[serde(rename = "error_503")]
    Error503,
    /// Takes the request and says nothing.
    Hang,
    /// Takes the request and resets the connection before any answer.
    Reset,
    /// Resets the connection after the first bytes of the body.
    CutStream,
    /// Every request is [`SLOW_FACTOR`] times as much work.
    Slow,
    /// Closes the port and all connections.
    Refuse,
}

pub(crate) const SLOW_FACTOR: f64 = 10.0;

/// Body of `POST /control`; what is absent stays as it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Order {
    pub(crate) fault: Option<Fault>,
    /// Factor on the GPU's own speed, 0 to stop.
    pub(crate) speed: Option<f64>,
    /// Share of requests that get a 500.
    pub(crate) error_rate: Option<f64>,
    /// Temperature shown to the driver instead of the simulated one; -1 ends it.
    pub(crate) temperature_c: Option<i64>,
    /// The order takes effect after this time.
    pub(crate) after_ms: u64,
    /// The fault ends this long after it began.
    pub(crate) for_ms: Option<u64>,
}

impl Order {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, String> {
        let order: Self = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let outside = |value: Option<f64>, most: f64| {
            value.is_some_and(|value| !(0.0..=most).contains(&value))
        };
        if outside(order.speed, 1_000.0) {
            return Err("speed is outside 0..=1000".to_owned());
        }
        if outside(order.error_rate, 1.0) {
            return Err("error_rate is outside 0..=1".to_owned());
        }
        Ok(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_and_bounded() {
        let order = Order::parse(br#"{"fault":"error_500","speed":0.5,"for_ms":10}"#).unwrap();
        assert_eq!(order.fault, Some(Fault::Error500));
        assert_eq!((order.speed, order.for_ms, order.after_ms), (Some(0.5), Some(10), 0));
        for (body, ok) in [
            (r#"{"error_rate":1}"#, true),
            (r#"{"error_rate":1.01}"#, false),
            (r#"{"speed":0}"#, true),
            (r#"{"speed":-0.1}"#, false),
            (r#"{"fault":"melt"}"#, false),
            (r#"{"falt":"none"}"#, false),
        ] {
            assert_eq!(Order::parse(body.as_bytes()).is_ok(), ok, "{body}");
        }
    }
}
