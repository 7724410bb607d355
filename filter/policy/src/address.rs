//! Endpoint addresses and lists of them.
//!
//! An address is `ip:port`, IPv6 in brackets, in the one spelling that Envoy itself prints (lowercase,
//! RFC 5952), so that equal endpoints are equal text. Names, scope identifiers, port 0 and spaces
//! inside an entry are refused: the list steers requests, so nothing but a plain address may be in it.
//! Every emitted text consists of `0-9 a-f . : [ ] ,` alone.

use alloc::{
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};
use core::net::SocketAddr;

/// Most entries that a list set by another picker may have.
pub const LIST_LEN_MAX: usize = 64;
/// Longest address in any spelling: `[` 45 `]:65535`.
pub const ADDRESS_BYTES_MAX: usize = 64;

/// The canonical spelling of `text`, or `None` when it is no endpoint address.
#[must_use]
pub fn canonical(text: &str) -> Option<String> {
    if text.len() > ADDRESS_BYTES_MAX {
        return None;
    }
    let address: SocketAddr = text.parse().ok()?;
    if address.port() == 0 {
        return None;
    }
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 || text.contains('%') => None,
        _ => Some(address.to_string()),
    }
}

/// The endpoints of a header value `ip:port,ip:port`, each once, in order.
///
/// Errors: `None` when any entry is wrong, the list is empty or longer than [`LIST_LEN_MAX`]; half a
/// list would steer to endpoints in an order nobody meant. Spaces around commas are allowed, since
/// proxies join repeated headers with `, `.
#[must_use]
pub fn parse_list(value: &[u8]) -> Option<Vec<String>> {
    // A byte limit first, so that a huge header costs nothing.
    if value.len() > LIST_LEN_MAX.saturating_mul(ADDRESS_BYTES_MAX + 2) {
        return None;
    }
    let text = core::str::from_utf8(value).ok()?;
    let mut list: Vec<String> = Vec::new();
    for entry in text.split(',') {
        let address = canonical(entry.trim_matches([' ', '\t']))?;
        if !list.contains(&address) {
            if list.len() == LIST_LEN_MAX {
                return None;
            }
            list.push(address);
        }
    }
    Some(list)
}

/// The header value for `list`.
#[must_use]
pub fn join(list: &[Arc<str>]) -> String {
    let mut out = String::with_capacity(list.iter().map(|a| a.len() + 1).sum());
    for (i, address) in list.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(address);
    }
    out
}

#[cfg(test)]
mod tests {
    use alloc::{format, vec};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses() {
        for (text, expected) in [
            ("10.0.0.1:80", Some("10.0.0.1:80")),
            ("[::1]:8000", Some("[::1]:8000")),
            ("[2001:DB8:0:0::1]:1", Some("[2001:db8::1]:1")),
            ("[::ffff:1.2.3.4]:9", Some("[::ffff:1.2.3.4]:9")),
            ("10.0.0.1:65535", Some("10.0.0.1:65535")),
            ("10.0.0.1:65536", None),
            ("10.0.0.1:0", None),
            ("10.0.0.1", None),
            ("10.0.0.01:80", None),
            ("::1:80", None),
            ("[fe80::1%1]:80", None),
            ("[fe80::1%0]:80", None),
            ("llm.example:80", None),
            (" 10.0.0.1:80", None),
            ("", None),
        ] {
            assert_eq!(canonical(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn lists() {
        let list = |text: &str| parse_list(text.as_bytes());
        assert_eq!(list("1.2.3.4:5"), Some(vec!["1.2.3.4:5".to_string()]));
        assert_eq!(
            list("1.2.3.4:5, [::1]:6,1.2.3.4:5"),
            Some(vec!["1.2.3.4:5".to_string(), "[::1]:6".to_string()])
        );
        for wrong in ["", ",", "1.2.3.4:5,", ",1.2.3.4:5", "1.2.3.4:5;1.2.3.4:6", "1.2.3.4:5,x"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
        assert_eq!(parse_list(b"1.2.3.4:5,\xff"), None);
    }

    #[test]
    fn list_length_at_the_limit_and_one_over() {
        let text =
            |n: usize| (1..=n).map(|p| format!("10.0.0.1:{p}")).collect::<Vec<_>>().join(",");
        assert_eq!(parse_list(text(LIST_LEN_MAX).as_bytes()).unwrap().len(), LIST_LEN_MAX);
        assert_eq!(parse_list(text(LIST_LEN_MAX + 1).as_bytes()), None);
        // Repeats do not count: 65 entries, one of them twice.
        let repeated = format!("10.0.0.1:1,{}", text(LIST_LEN_MAX));
        assert_eq!(parse_list(repeated.as_bytes()).unwrap().len(), LIST_LEN_MAX);
    }

    proptest! {
        #[test]
        fn anything_emitted_is_plain_and_parses_to_itself(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(list) = parse_list(&bytes) {
                let list: Vec<Arc<str>> = list.into_iter().map(Arc::from).collect();
                let text = join(&list);
                prop_assert!(text.bytes().all(|b| b"0123456789abcdef.:[],".contains(&b)));
                prop_assert_eq!(parse_list(text.as_bytes()).unwrap().len(), list.len());
            }
        }

        #[test]
        fn every_socket_address_is_its_own_canonical_form(ip in any::<[u16; 8]>(), port in 1u16..) {
            let text = SocketAddr::from((ip, port)).to_string();
            prop_assert_eq!(canonical(&text), Some(text.clone()));
        }
    }
}
