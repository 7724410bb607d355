//! Envoy without Tidegate: its own balancing, set up as a service in an Istio mesh has it. What Tidegate is compared
//! with, so nothing here is turned down.
//!
//! As Istio's sidecars: least_request over two choices, circuit breakers out of the way, retries that avoid hosts already
//! tried (`previous_hosts`, five attempts to find another); as a `DestinationRule` with `outlierDetection` adds: five
//! 5xx in a row eject a host for 30 s, checked every 10 s, at most 10 % of the hosts but always at least one. Better
//! than Istio's default in one point: that retries 503 only, here every 5xx and reset is retried, as Tidegate does.

use std::net::SocketAddr;

use serde_json::{Value, json};

/// How Envoy picks a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balance {
    RoundRobin,
    LeastRequest,
}

/// Whether failures take a host out and are retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Outlier detection and two retries.
    Mesh,
    Off,
}

/// One host and its weight; equal weights are what Envoy has without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    pub address: SocketAddr,
    pub weight: u32,
}

/// A listener of its own with a cluster behind it. One Envoy holds several; they share nothing but the process.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    pub name: String,
    pub listen: SocketAddr,
    pub balance: Balance,
    pub guard: Guard,
    pub hosts: Vec<Host>,
}

/// A whole bootstrap, to be written to a file as it is: JSON is YAML.
pub fn bootstrap(admin: SocketAddr, pools: &[Pool]) -> Value {
    json!({
        "admin": {"address": address(admin)},
        "static_resources": {
            "listeners": pools.iter().map(Pool::listener).collect::<Vec<_>>(),
            "clusters": pools.iter().map(Pool::cluster).collect::<Vec<_>>(),
        },
    })
}

impl Pool {
    fn listener(&self) -> Value {
        let mut route = json!({"cluster": self.name, "timeout": "300s"});
        if self.guard == Guard::Mesh {
            route["retry_policy"] = json!({
                "retry_on": "connect-failure,refused-stream,reset,5xx",
                "num_retries": 2,
                "retry_host_predicate": [{
                    "name": "envoy.retry_host_predicates.previous_hosts",
                    "typed_config": {"@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"},
                }],
                "host_selection_retry_max_attempts": 5,
            });
        }
        json!({
            "name": self.name,
            "address": address(self.listen),
            "filter_chains": [{"filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                    "stat_prefix": self.name,
                    "route_config": {
                        "name": self.name,
                        "virtual_hosts": [{
                            "name": self.name,
                            "domains": ["*"],
                            "routes": [{"match": {"prefix": "/"}, "route": route}],
                        }],
                    },
                    "http_filters": [{
                        "name": "envoy.filters.http.router",
                        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
                    }],
                },
            }]}],
        })
    }

    fn cluster(&self) -> Value {
        let endpoints: Vec<Value> = self
            .hosts
            .iter()
            .map(|host| {
                json!({
                    "endpoint": {"address": address(host.address)},
                    "load_balancing_weight": host.weight,
                })
            })
            .collect();
        const UNLIMITED: u32 = u32::MAX;
        let mut cluster = json!({
            "name": self.name,
            "type": "STATIC",
            "connect_timeout": "10s",
            "lb_policy": match self.balance {
                Balance::RoundRobin => "ROUND_ROBIN",
                Balance::LeastRequest => "LEAST_REQUEST",
            },
            "load_assignment": {"cluster_name": self.name, "endpoints": [{"lb_endpoints": endpoints}]},
            "circuit_breakers": {"thresholds": [{
                "max_connections": UNLIMITED,
                "max_pending_requests": UNLIMITED,
                "max_requests": UNLIMITED,
                "max_retries": UNLIMITED,
            }]},
        });
        if self.guard == Guard::Mesh {
            cluster["outlier_detection"] = json!({
                "consecutive_5xx": 5,
                "interval": "10s",
                "base_ejection_time": "30s",
                "max_ejection_percent": 10,
                "enforcing_success_rate": 0,
            });
        }
        cluster
    }
}

fn address(of: SocketAddr) -> Value {
    json!({"socket_address": {"address": of.ip().to_string(), "port_value": of.port()}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(guard: Guard) -> Pool {
        let host = Host { address: ([127, 0, 0, 1], 8_001).into(), weight: 45 };
        let listen = ([127, 0, 0, 1], 10_000).into();
        Pool {
            name: "llm".to_owned(),
            listen,
            balance: Balance::LeastRequest,
            guard,
            hosts: vec![host],
        }
    }

    #[test]
    fn mesh_guard_has_what_a_mesh_has_and_off_has_none_of_it() {
        let admin = ([127, 0, 0, 1], 9_901).into();
        let text = bootstrap(admin, &[pool(Guard::Mesh)]).to_string();
        for part in [
            r#""num_retries":2"#,
            "previous_hosts",
            r#""consecutive_5xx":5"#,
            r#""base_ejection_time":"30s""#,
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        let text = bootstrap(admin, &[pool(Guard::Off)]).to_string();
        assert!(!text.contains("retry_policy") && !text.contains("outlier_detection"), "{text}");
        assert!(text.contains(r#""load_balancing_weight":45"#));
    }
}
