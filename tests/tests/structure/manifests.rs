//! The manifests are what Kubernetes and Istio take: core kinds by the schemas of kubernetes-validate,
//! Istio's kinds by the schemas in `tests/schemas/istio`, which also hold Istio's rules across fields.
//! For each kind a broken copy is refused, so a schema that lets everything pass would be noticed.

use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tidegate_tests::skip;

use crate::support::{
    Scratch, accepted, documents, files_below, name, root, run, said, text, venv,
};

/// The oldest Kubernetes that the manifests are checked for, and a new one.
const KUBERNETES: &[&str] = &["1.31", "1.35"];
const SETUP: &str = "cargo xtask setup";

fn schema(document: &Value) -> PathBuf {
    let kind = document["kind"].as_str().unwrap_or_default();
    root().join(format!("tests/schemas/istio/{kind}.json"))
}

/// All documents of the manifests, but for kustomize's own file.
fn all() -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for path in files_below("istio") {
        let manifest = path.ends_with(".yaml") && path.matches('/').count() == 1;
        if manifest && !path.ends_with("/kustomization.yaml") {
            all.extend(documents(&path)?);
        }
    }
    Ok(all)
}

fn find(kind: &str) -> Result<Value> {
    let found = all()?.into_iter().find(|document| document["kind"] == kind);
    found.with_context(|| format!("no {kind} in istio/"))
}

fn kubernetes(validate: &PathBuf, version: &str, documents: &[Value]) -> Result<Output> {
    let scratch = Scratch::new()?;
    let mut command = Command::new(validate);
    command.args(["--strict", "--quiet", "-k", version]);
    for (number, document) in documents.iter().enumerate() {
        command.arg(scratch.write(&format!("{number}.yaml"), document)?);
    }
    run(&mut command)
}

#[test]
fn core_kinds_pass_and_a_typo_does_not() -> Result<()> {
    let Some(validate) = venv("kubernetes-validate") else {
        skip!("kubernetes-validate is missing: {SETUP}");
    };
    let core: Vec<Value> =
        all()?.into_iter().filter(|document| !schema(document).is_file()).collect();
    ensure!(core.len() >= 8, "only {} objects of core kinds", core.len());
    for version in KUBERNETES {
        accepted(&kubernetes(&validate, version, &core)?)?;
    }
    for (kind, pointer, key) in [
        ("DaemonSet", "/spec/template/spec", "toleration"),
        ("Deployment", "/spec/template/spec/containers/0", "livenesProbe"),
        ("PodDisruptionBudget", "/spec", "maxUnavailible"),
        ("Service", "/spec/ports/0", "appProtokol"),
    ] {
        let mut broken = find(kind)?;
        let place = broken.pointer_mut(pointer).and_then(Value::as_object_mut).context(pointer)?;
        place.insert(key.into(), json!([]));
        let output = kubernetes(&validate, KUBERNETES[0], &[broken])?;
        ensure!(!output.status.success(), "{kind} with {key} passes:\n{}", said(&output));
    }
    Ok(())
}

fn istio(python: &PathBuf, document: &Value) -> Result<Output> {
    let scratch = Scratch::new()?;
    let instance = scratch.write("instance.json", document)?;
    let mut command = Command::new(python);
    command.args(["-W", "ignore", "-m", "jsonschema", "-i"]).arg(instance).arg(schema(document));
    run(&mut command)
}

#[test]
fn istio_kinds_pass_their_schemas() -> Result<()> {
    let Some(python) = venv("jsonschema").and(venv("python")) else {
        skip!("jsonschema is missing: {SETUP}");
    };
    let ours: Vec<Value> =
        all()?.into_iter().filter(|document| schema(document).is_file()).collect();
    ensure!(ours.len() >= 7, "only {} objects of Istio's kinds", ours.len());
    for document in &ours {
        accepted(&istio(&python, document)?).with_context(|| name(document))?;
    }
    Ok(())
}

/// Writes `value` at `pointer`, making the last key if it is not there.
fn put(document: &mut Value, pointer: &str, value: Value) -> Result<()> {
    let (parent, key) = pointer.rsplit_once('/').context("a pointer")?;
    let parent = document.pointer_mut(parent).with_context(|| format!("no {parent}"))?;
    match parent {
        Value::Object(map) => drop(map.insert(key.into(), value)),
        Value::Array(list) => list[key.parse::<usize>()?] = value,
        other => anyhow::bail!("{other} has no fields"),
    }
    Ok(())
}

#[test]
fn broken_istio_objects_are_refused() -> Result<()> {
    let Some(python) = venv("jsonschema").and(venv("python")) else {
        skip!("jsonschema is missing: {SETUP}");
    };
    let inline = json!({"env": [{"name": "A", "valueFrom": "HOST", "value": "1"}]});
    let cases = [
        // A value that looks right and is not: Istio's word is FAIL_CLOSE.
        ("WasmPlugin", "/spec/failStrategy", json!("FAIL_CLOSED")),
        ("WasmPlugin", "/spec/sha256", json!("abc")),
        // The three rules across fields: scheme of the address, one way to select, no value from a host.
        ("WasmPlugin", "/spec/url", json!("ftp://registry.example.com/filter")),
        ("WasmPlugin", "/spec/targetRefs", json!([{"kind": "Gateway", "name": "g"}])),
        ("WasmPlugin", "/spec/vmConfig", inline),
        ("WasmPlugin", "/spec/match/0/ports/0/number", json!(0)),
        ("EnvoyFilter", "/spec/configPatches/0/applyTo", json!("CLUSTERS")),
        ("EnvoyFilter", "/spec/priority", json!("high")),
        ("DestinationRule", "/spec/trafficPolicy/tls", json!({"mode": "STRICT"})),
        ("DestinationRule", "/spec/trafficPolicy/loadBalancers", json!({})),
        ("VirtualService", "/spec/http/0/retries", json!({"attemps": 0})),
        ("VirtualService", "/spec/http/0/timeout", json!(600)),
        ("PeerAuthentication", "/spec/portLevelMtls", json!({"http": {"mode": "STRICT"}})),
        ("PeerAuthentication", "/spec/mtls/mode", json!("ON")),
        ("AuthorizationPolicy", "/spec/rules/0/to/0/operation/ports", json!([9000])),
        ("AuthorizationPolicy", "/spec/action", json!("PERMIT")),
    ];
    for (kind, pointer, value) in cases {
        let mut broken = find(kind)?;
        put(&mut broken, pointer, value.clone())?;
        let output = istio(&python, &broken)?;
        ensure!(!output.status.success(), "{kind} with {pointer} = {value} passes");
    }
    Ok(())
}

#[test]
fn kustomization_lists_every_manifest_but_the_gateway() -> Result<()> {
    let kustomization = text("istio/kustomization.yaml")?;
    for path in files_below("istio").iter().filter(|path| path.matches('/').count() == 1) {
        let file = path.trim_start_matches("istio/");
        if file.ends_with(".yaml") && file != "kustomization.yaml" {
            let listed = kustomization.contains(&format!("- {file}\n"));
            ensure!(listed != (file == "gateway.yaml"), "{file} in kustomization.yaml: {listed}");
        }
    }
    Ok(())
}
