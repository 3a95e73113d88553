//! What a bundler counted.

use serde_json::Value;

/// One of the numbers of its account.
pub fn counted(account: Option<&Value>, key: &str) -> Option<u64> {
    account?.get(key)?.as_u64()
}

/// Redundant bytes as a share of all payload that it sent, 0 to 1.
pub fn redundant_share(account: Option<&Value>) -> Option<f64> {
    let redundant = counted(account, "redundant_bytes")? as f64;
    let new = counted(account, "new_bytes")? as f64;
    Some(redundant / (new + redundant))
}
