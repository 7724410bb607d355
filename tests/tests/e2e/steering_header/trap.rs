//! A proxy-wasm module that loads, configures, and traps on every request: the smallest that Envoy
//! takes, assembled here so that the shipped filter needs no way to be broken.

/// `(parameters, has a result)`, all of type i32.
const TYPES: [(u8, bool); 5] = [(0, false), (1, true), (2, false), (2, true), (3, true)];

/// Exported functions: name, index of type, body.
const FUNCTIONS: [(&str, u8, &[u8]); 7] = [
    ("proxy_abi_version_0_2_1", 0, &[]),
    ("_initialize", 0, &[]),
    ("proxy_on_memory_allocate", 1, &[0x41, 0x80, 0x08]),
    ("proxy_on_context_create", 2, &[]),
    ("proxy_on_vm_start", 3, &[0x41, 1]),
    ("proxy_on_configure", 3, &[0x41, 1]),
    // unreachable
    ("proxy_on_request_headers", 4, &[0x00]),
];

pub(super) fn module() -> Vec<u8> {
    let types: Vec<Vec<u8>> = TYPES
        .iter()
        .map(|&(parameters, has_result)| {
            let mut bytes = vec![0x60, parameters];
            bytes.extend(std::iter::repeat_n(0x7f, parameters.into()));
            bytes.extend(if has_result { vec![1, 0x7f] } else { vec![0] });
            bytes
        })
        .collect();
    let functions: Vec<Vec<u8>> = FUNCTIONS.iter().map(|(_, kind, _)| vec![*kind]).collect();
    let mut exports: Vec<Vec<u8>> =
        (FUNCTIONS.iter().zip(0u8..)).map(|((name, ..), index)| export(name, 0, index)).collect();
    exports.push(export("memory", 2, 0));
    let code: Vec<Vec<u8>> = FUNCTIONS
        .iter()
        .map(|(_, _, body)| {
            // No locals, the body, end.
            let mut bytes = length(body.len() + 2);
            bytes.push(0);
            bytes.extend_from_slice(body);
            bytes.push(0x0b);
            bytes
        })
        .collect();
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    // Types, functions, one memory of one page, exports, code.
    for (id, entries) in
        [(1, types), (3, functions), (5, vec![vec![0, 1]]), (7, exports), (10, code)]
    {
        let mut content = length(entries.len());
        content.extend(entries.concat());
        module.push(id);
        module.extend(length(content.len()));
        module.extend(content);
    }
    module
}

fn export(name: &str, kind: u8, index: u8) -> Vec<u8> {
    let mut bytes = length(name.len());
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend([kind, index]);
    bytes
}

/// LEB128.
fn length(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}
