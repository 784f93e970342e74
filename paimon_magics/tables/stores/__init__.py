"""The stores of files (local disks, object stores, HDFS), and what each can do in one step."""
