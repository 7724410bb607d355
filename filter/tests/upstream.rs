//! The serialised `GrpcService` is text, and any protobuf decoder reads the names back from it.

use prost::Message;
use tidegate_filter::upstream::{NAME_BYTES_MAX, grpc_service};

/// The two messages of `envoy.config.core.v3` as far as the filter writes them.
#[derive(Clone, PartialEq, Message)]
struct GrpcService {
    #[prost(message, optional, tag = "1")]
    envoy_grpc: Option<EnvoyGrpc>,
}

#[derive(Clone, PartialEq, Message)]
struct EnvoyGrpc {
    #[prost(string, tag = "1")]
    cluster_name: String,
    #[prost(string, tag = "2")]
    authority: String,
}

fn name(len: usize, first: char) -> String {
    let mut name: String =
        "outbound|9000||control-plane.ns.svc.".chars().cycle().take(len).collect();
    if len > 0 {
        name.replace_range(..1, &first.to_string());
    }
    name
}

#[test]
fn every_pair_of_name_lengths_decodes_to_its_names() {
    for cluster_len in 1..=NAME_BYTES_MAX {
        for authority_len in 1..=NAME_BYTES_MAX {
            let (cluster, authority) = (name(cluster_len, 'c'), name(authority_len, 'a'));
            // A `String`: that it is UTF-8 is proven by its type.
            let text = grpc_service(&cluster, &authority).expect("within the limits");
            let decoded = GrpcService::decode(text.as_bytes()).expect("valid protobuf");
            let inner = decoded.envoy_grpc.expect("the target");
            assert_eq!((inner.cluster_name, inner.authority), (cluster, authority));
        }
    }
}

#[test]
fn names_outside_the_limits_are_refused() {
    let expected = |len: usize| (1..=127).contains(&len);
    for len in 0..=300 {
        let long = name(len, 'x');
        assert_eq!(grpc_service(&long, "a").is_some(), expected(len), "cluster of {len}");
        assert_eq!(grpc_service("c", &long).is_some(), expected(len), "authority of {len}");
    }
}

#[test]
fn short_names_need_no_padding() {
    // 0x0a 7: inner of 7 bytes; 0x0a 2 "cp": cluster; 0x12 1 "a": authority.
    assert_eq!(grpc_service("cp", "a").as_deref(), Some("\x0a\x07\x0a\x02cp\x12\x01a"));
}

#[test]
fn names_of_several_bytes_a_letter_are_counted_in_bytes() {
    let cluster = "é".repeat(63);
    let text = grpc_service(&cluster, "a").expect("126 bytes");
    let inner = GrpcService::decode(text.as_bytes()).unwrap().envoy_grpc.unwrap();
    assert_eq!(inner.cluster_name, cluster);
    assert_eq!(grpc_service(&"é".repeat(64), "a"), None);
}
