//! End-to-end tests with real processes, one behaviour a file.
//!
//! Every test of a fault proves that the fault was in force, by the ledger of the model servers, a
//! metric or a log. Tests run one at a time: each starts an Envoy and more, and two at once would
//! measure the machine.

mod e2e {
    mod common;

    mod bad_configuration;
    mod bodies;
    mod capacity_share;
    mod control_plane_gone;
    mod existing_list;
    mod garbage;
    mod gpu_hung;
    mod gpu_lost;
    mod header_bytes;
    mod metrics;
    mod no_endpoints;
    mod observe;
    mod one_stream;
    mod people;
    mod reconfigured;
    mod reporter_gone;
    mod retries;
    mod scaling;
    mod services;
    mod several_envoys;
    mod steering;
    mod steering_header;
    mod throttle;
    mod unknown_data;
    mod xid;
}
