//! The checked-in code is what the proto files generate. `UPDATE=1 cargo test -p tidegate-proto --test fresh`
//! (which is what `cargo xtask gen` runs) rewrites it.

use std::path::Path;

fn generate(out: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["tidegate/v1/report.proto", "tidegate/v1/fleet.proto"];
    let descriptors = protox::compile(files, [root]).unwrap();
    tonic_prost_build::configure()
        .out_dir(out)
        .client_mod_attribute(".", "#[cfg(feature = \"client\")]")
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        .build_transport(false)
        .compile_fds(descriptors)
        .unwrap();
}

#[test]
fn generated_code_matches_the_proto_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let checked_in = root.join("src/gen/tidegate.v1.rs");
    let out = root.join("../target/proto-fresh");
    std::fs::create_dir_all(&out).unwrap();
    generate(&out);
    let fresh = std::fs::read_to_string(out.join("tidegate.v1.rs")).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the switch of `cargo xtask gen`")]
    let update = std::env::var_os("UPDATE").is_some();
    if update {
        std::fs::write(&checked_in, &fresh).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(&checked_in).unwrap_or_default();
    assert!(
        committed == fresh,
        "src/gen/tidegate.v1.rs is not what the proto files generate: run `cargo xtask gen`"
    );
}
