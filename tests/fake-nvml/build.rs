//! Keeps the library mapped after `dlclose`: a client that retries a failed initialisation closes and
//! opens it again, and the record of delivered events must survive that.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
