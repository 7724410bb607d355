//! End-to-end tests with real processes, one behaviour a file.
//!
//! Every test of a fault proves that the fault was in force, by the ledger of the model servers, a
//! metric or a log. Tests run one at a time: each starts an Envoy and more, and two at once would
//! measure the machine.

mod e2e {
    mod common;

    mod existing_list;
    mod observe;
    mod one_stream;
    mod retries;
    mod steering;
    mod steering_header;
}
