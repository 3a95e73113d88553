//! The user-space path: joins two network namespaces with delay, rate and loss.
