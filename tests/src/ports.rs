//! Free ports, taken below the range from which the kernel gives out ports to clients, so that no
//! outgoing connection takes one between its choice and its use.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{LazyLock, Mutex, PoisonError};

const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// Ports that this process has given out.
static TAKEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// A port of 127.0.0.1 that nothing listens on.
///
/// # Panics
/// When none of 20,000 is free.
#[must_use]
pub fn free() -> SocketAddr {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    // Other test processes draw other numbers; a port taken all the same is found by binding it.
    let start: u16 = rand::random_range(0..COUNT);
    for offset in 0..COUNT {
        let port = FIRST + (start + offset % COUNT) % COUNT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if !taken.contains(&port) && TcpListener::bind(address).is_ok() {
            taken.insert(port);
            return address;
        }
    }
    panic!("no free port in {FIRST}..{}", FIRST + COUNT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_not_given_twice() {
        let all: Vec<_> = (0..50).map(|_| free()).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 50);
        assert!(all.iter().all(|address| TcpListener::bind(address).is_ok()));
    }
}
