use sha2::{Digest, Sha256};

/// Returns the first 16 hexadecimal digits of a text's SHA-256.
pub(crate) fn hash_of(text: &str) -> String {
    let hash = Sha256::digest(text);
    let bytes = hash.iter().take(8);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
