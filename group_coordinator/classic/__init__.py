"""Classic groups: the clients' leader assigns (JoinGroup, SyncGroup, Heartbeat, LeaveGroup)."""
